"""Metropolis-adjusted Langevin: a Hamiltonian trajectory of one step, whose size and metric adapt during warmup."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from pydantic import Field

from bayesmesh.config.blocks import HamiltonianSettings
from bayesmesh.config.settings import Argument
from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel, HamiltonianTuning
from bayesmesh.kernels.base import Target
from bayesmesh.kernels.hamiltonian.trajectory import STATISTICS, HamiltonianInfo, HamiltonianState, run_trajectory

__all__ = ["NewKernel", "Options"]


class Options(HamiltonianSettings):
    """Options of `new_kernel`."""

    target_acceptance: Argument[float] = Field(
        0.574, gt=0, lt=1, description="Target mean acceptance for step size adaptation."
    )


class NewKernel(HamiltonianKernel[HamiltonianInfo]):
    """Metropolis-adjusted Langevin."""

    pretty_name = "New kernel"
    reference = "Roberts and Rosenthal 1998"
    statistics = STATISTICS

    def expected_gradients(self) -> float:
        """One gradient a step."""
        return 1.0

    def step(
        self, key: jax.Array, state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Propose, then accept or stay."""
        one = jnp.ones((), jnp.int32)
        return run_trajectory(key, state, target, self.metric, tuning.metric, tuning.step_size, one)
