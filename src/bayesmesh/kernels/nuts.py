"""The No-U-Turn sampler for many chains: each finds its own trajectory length, and needs no other chain for it.

One step size and one diagonal scale serve all chains, as in the other kernels. Chains wait for the longest trajectory
among them, which on an accelerator is what a transition costs; `chees` avoids that, and needs several chains.
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
from bayesmesh.kernels.adaptation.windows import is_window_end
from bayesmesh.kernels.base import Kernel, LogDensityFn, Position
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState, batch_dot, init_state, standard_normal
from bayesmesh.kernels.hamiltonian.tree import grow_tree

__all__ = ["Nuts", "NutsInfo", "NutsTuning", "NutsWarmup", "Options"]


class Options(Settings):
    """Options of `nuts`."""

    target_acceptance: float = Field(
        0.8, gt=0, lt=1, description="Mean acceptance over the points of a trajectory that the step size is adapted to."
    )
    initial_step_size: float = Field(
        0.1, gt=0, le=1e6, description="Step size at the first iteration, in units of the scale."
    )
    max_tree_depth: int = Field(
        10,
        ge=1,
        le=20,
        description="Most doublings of a trajectory; it has at most 2 to this power, less 1, gradients.",
    )


class NutsInfo(NamedTuple):
    """What diagnostics need of a step; becomes `sample_stats`.

    Attributes:
        acceptance_rate: (chain,) Metropolis acceptance probability, mean over the trajectory.
        accepted: (chain,) whether the draw is another point than the one before.
        diverging: (chain,) whether the trajectory ended with an energy error beyond the limit, or not finite.
        energy: (chain,) Hamiltonian of the point drawn, nats.
        lp: (chain,) log density of the point drawn, nats.
        log_likelihood: (chain,) its log likelihood, nats.
        tree_depth: (chain,) int32, doublings of the trajectory.
        num_leapfrog_steps: (chain,) int32, of the chain's own trajectory.
        n_steps: () gradients of the transition: the leapfrog steps of the longest trajectory.
        step_size: () in units of the scale.
    """

    acceptance_rate: jax.Array
    accepted: jax.Array
    diverging: jax.Array
    energy: jax.Array
    lp: jax.Array
    log_likelihood: jax.Array
    tree_depth: jax.Array
    num_leapfrog_steps: jax.Array
    n_steps: jax.Array
    step_size: jax.Array


class NutsTuning(NamedTuple):
    """What stays fixed after warmup: () float64 step size, and scale without the chain axis."""

    step_size: jax.Array
    scale: Position


class NutsWarmup(NamedTuple):
    """Kernel state and adaptation."""

    kernel: HamiltonianState
    step_size: StepSizeState
    scale: Position
    moments: MomentState
    active: Position


class Nuts(Kernel):
    """The No-U-Turn sampler with multinomial weights and a diagonal preconditioner."""

    pretty_name = "NUTS"
    reference = "Hoffman and Gelman 2014; Betancourt 2017; Phan, Pradhan and Jankowiak 2019"

    def expected_gradients(self) -> float:
        """A guess: a tree of depth four."""
        return float(2 ** min(4, self.options.max_tree_depth) - 1)

    def init(self, position: Position, log_density_fn: LogDensityFn) -> HamiltonianState:
        """Return the state at a position."""
        return init_state(position, log_density_fn)

    def step(
        self, key: jax.Array, state: HamiltonianState, log_density_fn: LogDensityFn, tuning: NutsTuning
    ) -> tuple[HamiltonianState, NutsInfo]:
        """Grow a trajectory until it turns, and draw from it."""
        key_momentum, key_tree = (jax.vmap(lambda k, i=i: jax.random.fold_in(k, i))(key) for i in range(2))
        momentum = standard_normal(key_momentum, state.position, tuning.scale)
        tree = grow_tree(
            key_tree, state, momentum, tuning.scale, tuning.step_size, self.options.max_tree_depth, log_density_fn
        )
        drawn = tree.whole.drawn
        lp = drawn.log_prior + drawn.log_likelihood
        info = NutsInfo(
            acceptance_rate=tree.acceptance_sum / tree.count,
            accepted=tree.accepted,
            diverging=tree.diverging,
            energy=0.5 * batch_dot(drawn.momentum, drawn.momentum) - lp,
            lp=lp,
            log_likelihood=drawn.log_likelihood,
            tree_depth=tree.depth,
            num_leapfrog_steps=tree.count,
            n_steps=tree.num_gradients,
            step_size=tuning.step_size,
        )
        return HamiltonianState(
            drawn.position, drawn.log_prior, drawn.log_likelihood, drawn.gradient, state.num_steps + 1
        ), info

    def warmup_init(self, state: HamiltonianState, active: Position) -> NutsWarmup:
        """Scale each coordinate by the gradient where the chains start."""
        scale = initial_scale(state.gradient, active)
        return NutsWarmup(state, init_step_size(self.options.initial_step_size), scale, init_moments(active), active)

    def warmup_step(
        self, key: jax.Array, state: NutsWarmup, log_density_fn: LogDensityFn
    ) -> tuple[NutsWarmup, NutsInfo]:
        """Grow a trajectory and learn from it."""
        tuning = NutsTuning(jnp.exp(state.step_size.log_step), state.scale)
        kernel, info = self.step(key, state.kernel, log_density_fn, tuning)
        acceptance = mean_of_living(info.acceptance_rate, info.lp)
        state = state._replace(
            kernel=kernel,
            step_size=update_step_size(state.step_size, acceptance, self.options.target_acceptance),
            moments=update_moments(state.moments, kernel.position, kernel.gradient),
        )
        closes = is_window_end(kernel.num_steps, self.num_warmup)
        return jax.lax.cond(closes, self._close_window, lambda s: s, state), info

    def _close_window(self, state: NutsWarmup) -> NutsWarmup:
        return state._replace(
            scale=estimate_scale(state.moments, state.active),
            step_size=init_step_size(jnp.exp(state.step_size.log_step), boldness=2.0),
            moments=init_moments(state.active),
        )

    def warmup_finish(self, state: NutsWarmup) -> tuple[HamiltonianState, NutsTuning]:
        """Return the kernel state and the averaged step size with its scale."""
        return state.kernel, NutsTuning(averaged_step_size(state.step_size), state.scale)
