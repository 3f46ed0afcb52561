"""Metropolis-adjusted Langevin: a Hamiltonian trajectory of one step, whose size adapts during warmup."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from pydantic import Field

from bayesmesh.config.settings import Settings
from bayesmesh.kernels.adaptation.step_size import (
    StepSizeState,
    averaged_step_size,
    init_step_size,
    mean_of_living,
    update_step_size,
)
from bayesmesh.kernels.base import Kernel, LogDensityFn, Position
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianInfo, HamiltonianState, init_state, run_trajectory

__all__ = ["NewKernel", "Options", "Tuning", "Warmup"]


class Options(Settings):
    """Options of `new_kernel`."""

    initial_step_size: float = Field(0.1, gt=0, le=1e6, description="Step size at the first iteration.")
    target_acceptance: float = Field(0.574, gt=0, lt=1, description="Mean acceptance that the step size adapts to.")


class Tuning(NamedTuple):
    """What stays fixed after warmup: () float64 step size, and 0 for padding, which never moves."""

    step_size: jax.Array
    active: Position


class Warmup(NamedTuple):
    """Kernel state and adaptation."""

    kernel: HamiltonianState
    step_size: StepSizeState
    active: Position


class NewKernel(Kernel):
    """Metropolis-adjusted Langevin."""

    pretty_name = "New kernel"
    reference = "Roberts and Rosenthal 1998"

    def expected_gradients(self) -> float:
        """One gradient a step."""
        return 1.0

    def init(self, position: Position, log_density_fn: LogDensityFn) -> HamiltonianState:
        """Return the state at a position."""
        return init_state(position, log_density_fn)

    def step(
        self, key: jax.Array, state: HamiltonianState, log_density_fn: LogDensityFn, tuning: Tuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Propose, then accept or stay."""
        one = jnp.asarray(1, jnp.int32)
        state, info, _ = run_trajectory(key, state, log_density_fn, tuning.active, tuning.step_size, one)
        return state, info

    def warmup_init(self, state: HamiltonianState, active: Position) -> Warmup:
        """Start from the configured step size."""
        return Warmup(state, init_step_size(self.options.initial_step_size), active)

    def warmup_step(self, key: jax.Array, state: Warmup, log_density_fn: LogDensityFn) -> tuple[Warmup, Any]:
        """Make one step and learn from it."""
        tuning = Tuning(jnp.exp(state.step_size.log_step), state.active)
        kernel, info = self.step(key, state.kernel, log_density_fn, tuning)
        acceptance = mean_of_living(info.acceptance_rate, info.lp)
        step_size = update_step_size(state.step_size, acceptance, self.options.target_acceptance)
        return Warmup(kernel, step_size, state.active), info

    def warmup_finish(self, state: Warmup) -> tuple[HamiltonianState, Tuning]:
        """Return the kernel state and the averaged step size."""
        return state.kernel, Tuning(averaged_step_size(state.step_size), state.active)
