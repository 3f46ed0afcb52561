"""Hamiltonian Monte Carlo with a fixed number of leapfrog steps and dual averaging of the step size.

With `metric: identity` this is the sampler of TensorFlow Probability's tutorial "Distributed inference with JAX": fixed
length, one step size for all chains adapted during the first part of warmup towards an acceptance of 0.75. A fixed
length can resonate with the target; `chees` does not.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key
from pydantic import Field

from bayesmesh.config.blocks import HamiltonianSettings, MetricName
from bayesmesh.config.settings import Argument
from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel, HamiltonianTuning
from bayesmesh.kernels.base import Target
from bayesmesh.kernels.hamiltonian.trajectory import STATISTICS, HamiltonianInfo, HamiltonianState, run_trajectory


class Options(HamiltonianSettings):
    """Options of `hmc`."""

    # Compiled in: a loop of known length is 5% faster on a GPU, which need not check a condition after each step.
    num_leapfrog_steps: int = Field(
        20, ge=1, le=100_000, description="Leapfrog steps of a trajectory; each is one gradient."
    )
    initial_step_size: Argument[float] = Field(
        0.01, gt=0, le=1e6, description="Step size at the first iteration, in units of the metric."
    )
    target_acceptance: Argument[float] = Field(
        0.75, gt=0, lt=1, description="Mean acceptance that the step size is adapted to."
    )
    adaptation_fraction: Argument[float] = Field(
        1.0,
        gt=0,
        le=1,
        description="Part of warmup in which step size and metric adapt; the rest runs with what they found.",
    )
    metric: MetricName = "identity"


class Hmc(HamiltonianKernel[HamiltonianInfo]):
    """Fixed-length HMC."""

    pretty_name = "HMC, fixed length"
    reference = "Duane et al. 1987; Neal 2011; dual averaging: Hoffman and Gelman 2014"
    statistics = STATISTICS

    @property
    def num_adaptive(self) -> int | Int[Array, ""]:
        """The first `adaptation_fraction` of warmup."""
        count = self.options.adaptation_fraction * self.num_warmup
        return jnp.round(count).astype(jnp.int32) if isinstance(count, jax.Array) else round(count)

    def expected_gradients(self) -> float:
        """The number of leapfrog steps."""
        return float(self.options.num_leapfrog_steps)

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Make one trajectory."""
        num_steps = jnp.asarray(self.options.num_leapfrog_steps, jnp.int32)
        return run_trajectory(key, state, target, self.metric, tuning.metric, tuning.step_size, num_steps)
