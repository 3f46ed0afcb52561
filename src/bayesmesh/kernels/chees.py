"""ChEES-HMC: many chains in lock step share a step size, a diagonal scale and a jittered trajectory length.

The trajectory length climbs the ChEES criterion, which compares chains with each other, so at least two chains are
needed and sixteen are better. Lengths are jittered by a Halton sequence, which no target can resonate with. On an
accelerator every chain takes the same number of steps: nothing waits for the deepest tree.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from pydantic import Field

from bayesmesh.config.settings import Settings
from bayesmesh.kernels.adaptation.diagonal import (
    MomentState,
    estimate_scale,
    init_moments,
    initial_scale,
    update_moments,
)
from bayesmesh.kernels.adaptation.step_size import (
    StepSizeState,
    averaged_step_size,
    init_step_size,
    mean_of_living,
    update_step_size,
)
from bayesmesh.kernels.adaptation.trajectory_length import LengthState, halton, init_length, update_length
from bayesmesh.kernels.adaptation.windows import is_window_end
from bayesmesh.kernels.base import Kernel, LogDensityFn, Position
from bayesmesh.kernels.hamiltonian.trajectory import (
    HamiltonianInfo,
    HamiltonianState,
    Trajectory,
    init_state,
    run_trajectory,
)

__all__ = ["Chees", "CheesTuning", "CheesWarmup", "Options"]


class Options(Settings):
    """Options of `chees`."""

    target_acceptance: float = Field(
        0.7, gt=0, lt=1, description="Harmonic mean, over chains, of the acceptance that the step size is adapted to."
    )
    initial_step_size: float = Field(
        0.1, gt=0, le=1e6, description="Step size at the first iteration, in units of the scale."
    )
    initial_leapfrog_steps: float = Field(
        10.0, ge=1, le=10_000, description="Longest trajectory at the first iteration, in leapfrog steps."
    )
    max_leapfrog_steps: int = Field(
        256, ge=1, le=100_000, description="No trajectory is longer; each step is one gradient."
    )


class CheesTuning(NamedTuple):
    """What stays fixed after warmup.

    Attributes:
        step_size: () float64.
        trajectory_length: () float64, the longest, in units of step size.
        scale: position-shaped without the chain axis.
    """

    step_size: jax.Array
    trajectory_length: jax.Array
    scale: Position


class CheesWarmup(NamedTuple):
    """Kernel state and adaptation."""

    kernel: HamiltonianState
    step_size: StepSizeState
    length: LengthState
    scale: Position
    moments: MomentState
    active: Position


class Chees(Kernel):
    """ChEES-HMC with a diagonal preconditioner."""

    pretty_name = "ChEES-HMC"
    reference = "Hoffman, Radul and Sountsov 2021, AISTATS"
    min_chains = 2

    def expected_gradients(self) -> float:
        """A guess: half of the first longest trajectory, doubled by adaptation."""
        return float(self.options.initial_leapfrog_steps)

    def init(self, position: Position, log_density_fn: LogDensityFn) -> HamiltonianState:
        """Return the state at a position."""
        return init_state(position, log_density_fn)

    def step(
        self, key: jax.Array, state: HamiltonianState, log_density_fn: LogDensityFn, tuning: CheesTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Make one trajectory of jittered length."""
        state, info, _ = self._move(key, state, log_density_fn, tuning)
        return state, info

    def _move(
        self, key: jax.Array, state: HamiltonianState, log_density_fn: LogDensityFn, tuning: CheesTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo, Trajectory]:
        length = halton(state.num_steps) * tuning.trajectory_length
        num_steps = jnp.clip(jnp.ceil(length / tuning.step_size), 1, self.options.max_leapfrog_steps).astype(jnp.int32)
        return run_trajectory(key, state, log_density_fn, tuning.scale, tuning.step_size, num_steps)

    def warmup_init(self, state: HamiltonianState, active: Position) -> CheesWarmup:
        """Scale each coordinate by the gradient where the chains start."""
        scale = initial_scale(state.gradient, active)
        step = self.options.initial_step_size
        length = init_length(step * self.options.initial_leapfrog_steps)
        return CheesWarmup(state, init_step_size(step), length, scale, init_moments(active), active)

    def warmup_step(
        self, key: jax.Array, state: CheesWarmup, log_density_fn: LogDensityFn
    ) -> tuple[CheesWarmup, HamiltonianInfo]:
        """Make one trajectory and learn from it."""
        step_size = jnp.exp(state.step_size.log_step)
        tuning = CheesTuning(step_size, jnp.exp(state.length.log_length), state.scale)
        before = state.kernel
        kernel, info, trajectory = self._move(key, before, log_density_fn, tuning)
        harmonic = 1 / jnp.maximum(mean_of_living(1 / jnp.maximum(info.acceptance_rate, 1e-3), info.lp), 1.0)
        jitter = halton(before.num_steps)
        length = update_length(state.length, before, trajectory, state.scale, jitter)
        # Where the cap cuts, or one step is the least, the search has no effect. The step size in use swings while it
        # adapts: bounds that followed it down would cut the length for good.
        average = averaged_step_size(state.step_size)
        shortest = jnp.log(jnp.minimum(step_size, average))
        longest = jnp.log(jnp.maximum(step_size, average) * self.options.max_leapfrog_steps)
        length = length._replace(log_length=jnp.clip(length.log_length, shortest, longest))
        state = state._replace(
            kernel=kernel,
            step_size=update_step_size(state.step_size, harmonic, self.options.target_acceptance),
            length=length,
            moments=update_moments(state.moments, kernel.position, kernel.gradient),
        )
        closes = is_window_end(kernel.num_steps, self.num_warmup)
        return jax.lax.cond(closes, self._close_window, lambda s: s, state), info

    def _close_window(self, state: CheesWarmup) -> CheesWarmup:
        return state._replace(
            scale=estimate_scale(state.moments, state.active),
            step_size=init_step_size(jnp.exp(state.step_size.log_step), boldness=2.0),
            moments=init_moments(state.active),
        )

    def warmup_finish(self, state: CheesWarmup) -> tuple[HamiltonianState, CheesTuning]:
        """Return the kernel state and the averages of step size and length."""
        step_size, length = averaged_step_size(state.step_size), jnp.exp(state.length.log_average)
        return state.kernel, CheesTuning(step_size, length, state.scale)
