"""Hamiltonian Monte Carlo with a fixed number of leapfrog steps and dual averaging of the step size.

With `preconditioner: none` this is the sampler of TensorFlow Probability's tutorial "Distributed inference with JAX":
fixed length, one step size for all chains adapted during the first part of warmup towards an acceptance of 0.75.
A fixed length can resonate with the target; `chees` does not.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from pydantic import Field

from bayesmesh.config.settings import Settings
from bayesmesh.kernels.adaptation.diagonal import MomentState, estimate_scale, init_moments, update_moments
from bayesmesh.kernels.adaptation.step_size import (
    StepSizeState,
    averaged_step_size,
    init_step_size,
    mean_of_living,
    update_step_size,
)
from bayesmesh.kernels.adaptation.windows import is_window_end
from bayesmesh.kernels.base import Kernel, LogDensityFn, Position
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianInfo, HamiltonianState, init_state, run_trajectory

__all__ = ["Hmc", "HmcTuning", "HmcWarmup", "Options"]


class Options(Settings):
    """Options of `hmc`."""

    num_leapfrog_steps: int = Field(
        20, ge=1, le=100_000, description="Leapfrog steps of a trajectory; each is one gradient."
    )
    initial_step_size: float = Field(0.01, gt=0, le=1e6, description="Step size at the first iteration.")
    target_acceptance: float = Field(0.75, gt=0, lt=1, description="Mean acceptance that the step size is adapted to.")
    adaptation_fraction: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Part of warmup in which step size and scale adapt; the rest runs with what they found.",
    )
    preconditioner: Literal["none", "diagonal"] = Field(
        "none", description="`diagonal` scales each coordinate by what warmup saw of its spread."
    )


class HmcTuning(NamedTuple):
    """What stays fixed after warmup: () float64 step size, and scale without the chain axis."""

    step_size: jax.Array
    scale: Position


class HmcWarmup(NamedTuple):
    """Kernel state and adaptation."""

    kernel: HamiltonianState
    step_size: StepSizeState
    scale: Position
    moments: MomentState
    active: Position


class Hmc(Kernel):
    """Fixed-length HMC."""

    pretty_name = "HMC, fixed length"
    reference = "Duane et al. 1987; Neal 2011; dual averaging: Hoffman and Gelman 2014"

    @property
    def num_adaptive(self) -> int:
        """The first `adaptation_fraction` of warmup."""
        return round(self.options.adaptation_fraction * self.num_warmup)

    def expected_gradients(self) -> float:
        """The number of leapfrog steps."""
        return float(self.options.num_leapfrog_steps)

    def init(self, position: Position, log_density_fn: LogDensityFn) -> HamiltonianState:
        """Return the state at a position."""
        return init_state(position, log_density_fn)

    def step(
        self, key: jax.Array, state: HamiltonianState, log_density_fn: LogDensityFn, tuning: HmcTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Make one trajectory."""
        num_steps = jnp.asarray(self.options.num_leapfrog_steps, jnp.int32)
        state, info, _ = run_trajectory(key, state, log_density_fn, tuning.scale, tuning.step_size, num_steps)
        return state, info

    def warmup_init(self, state: HamiltonianState, active: Position) -> HmcWarmup:
        """Start from unit scale."""
        return HmcWarmup(state, init_step_size(self.options.initial_step_size), active, init_moments(active), active)

    def warmup_step(self, key: jax.Array, state: HmcWarmup, log_density_fn: LogDensityFn) -> tuple[HmcWarmup, Any]:
        """Make one trajectory and learn from it."""
        adapting = state.kernel.num_steps < self.num_adaptive
        step_size = jnp.where(adapting, jnp.exp(state.step_size.log_step), averaged_step_size(state.step_size))
        kernel, info = self.step(key, state.kernel, log_density_fn, HmcTuning(step_size, state.scale))
        acceptance = mean_of_living(info.acceptance_rate, info.lp)
        updated = update_step_size(state.step_size, acceptance, self.options.target_acceptance)
        step_state = jax.tree.map(lambda new, old: jnp.where(adapting, new, old), updated, state.step_size)
        state = state._replace(kernel=kernel, step_size=step_state)
        if self.options.preconditioner == "none":
            return state, info
        moments = update_moments(state.moments, kernel.position, kernel.gradient)
        closes = is_window_end(kernel.num_steps, self.num_adaptive)
        return jax.lax.cond(closes, self._close_window, lambda s: s, state._replace(moments=moments)), info

    def _close_window(self, state: HmcWarmup) -> HmcWarmup:
        scale = estimate_scale(state.moments, state.active)
        step_size = rescaled_step_size(state.step_size, state.scale, scale)
        return state._replace(scale=scale, step_size=step_size, moments=init_moments(state.active))

    def warmup_finish(self, state: HmcWarmup) -> tuple[HamiltonianState, HmcTuning]:
        """Return the kernel state and the averaged step size with its scale."""
        return state.kernel, HmcTuning(averaged_step_size(state.step_size), state.scale)


def rescaled_step_size(state: StepSizeState, old: Position, new: Position) -> StepSizeState:
    """Restart dual averaging after a change of scale, at the step size that keeps the smallest relative step."""
    ratios = [jnp.min(jnp.where(new[k] > 0, old[k] / jnp.where(new[k] > 0, new[k], 1), jnp.inf)) for k in sorted(new)]
    smallest = jnp.min(jnp.stack(ratios)).astype(jnp.float64)
    return init_step_size(jnp.exp(state.log_step) * smallest, boldness=10.0)
