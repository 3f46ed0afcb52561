"""The No-U-Turn sampler for many chains: each finds its own trajectory length without the others.

One step size and one metric serve all chains, as in the other kernels. Chains wait for the longest trajectory among them
during warmup, and where gradients are so cheap that waiting costs less than a turn (`sampling/program/turns.py`).
"""

from __future__ import annotations

from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from bayesmesh.kernels.adaptation.warmup import (
    HamiltonianKernel,
    HamiltonianTuning,
    Warmup,
    settled_begin,
)
from bayesmesh.kernels.base import Position, Statistic, TakesTurns, Target
from bayesmesh.kernels.hamiltonian.trajectory import RESTARTED, STATISTICS, HamiltonianState
from bayesmesh.kernels.hamiltonian.tree import Tree, begin_tree, grow, pick
from bayesmesh.kernels.options import NutsOptions as Options

_MOST_DIVERGENT = 5e-4
"""Share of divergent trajectories in warmup above which steps are too long for the posterior."""

_NUM_TRIALS = 10
"""Iterations at the beginning of a window whose divergences do not count, because the search tries steps twice as long."""


class NutsInfo(NamedTuple):
    """Info of a step; `Nuts.statistics` describes its fields.

    Attributes:
        acceptance_rate, energy, lp, log_likelihood: (chain,) float64.
        accepted, diverging, restarted: (chain,) bool.
        tree_depth, n_steps: (chain,) int32.
        step_size: (chain,) float64. target_acceptance: () float64.
    """

    acceptance_rate: jax.Array
    accepted: jax.Array
    diverging: jax.Array
    energy: jax.Array
    lp: jax.Array
    log_likelihood: jax.Array
    tree_depth: jax.Array
    n_steps: jax.Array
    step_size: jax.Array
    target_acceptance: jax.Array
    restarted: jax.Array


class Nuts(TakesTurns[HamiltonianState, Tree, HamiltonianTuning, NutsInfo], HamiltonianKernel[NutsInfo]):
    """The No-U-Turn sampler with multinomial weights."""

    pretty_name = "NUTS"
    options: Options
    reference = "Hoffman and Gelman 2014; Betancourt 2017; Phan, Pradhan and Jankowiak 2019"
    has_own_steps = True
    steps_alone = True
    restarts_chains = True
    continues_others = True
    statistics = (
        STATISTICS
        | RESTARTED
        | {
            "acceptance_rate": Statistic("1", "Metropolis acceptance probability, mean over the trajectory."),
            "accepted": Statistic("1", "Whether the draw is another point than the one before."),
            "tree_depth": Statistic("1", "Doublings of the trajectory."),
            "n_steps": Statistic(
                "gradient", "Leapfrog steps of the trajectory, without those for which its chain waits."
            ),
            "target_acceptance": Statistic("1", "Acceptance that the step size is adapted to; warmup may raise it."),
        }
    )

    def expected_gradients(self) -> float:
        """Guess a tree of depth four."""
        return float(2 ** min(4, self.options.max_tree_depth) - 1)

    def most_gradients(self) -> float:
        """Return those of the deepest tree."""
        return float(2**self.options.max_tree_depth - 1)

    def init_extra(self) -> Float[Array, ""]:
        """Return the share of divergent trajectories so far."""
        return jnp.zeros((), jnp.float64)

    def adapt_extra(
        self, adaptation: Warmup, before: HamiltonianState, info: NutsInfo, counts: Bool[Array, " chain"]
    ) -> Float[Array, ""]:
        """Count divergent trajectories, once the metric is estimated from the posterior and the first long steps are over."""
        begin, share = settled_begin(self.num_adaptive), cast(jax.Array, adaptation.extra)
        is_typical = (before.num_steps >= begin) & (adaptation.step_size.count >= _NUM_TRIALS)
        num_trajectories = len(counts) * jnp.maximum(self.num_adaptive - begin, 1)
        return share + jnp.sum(info.diverging & counts & is_typical) / num_trajectories

    def target_acceptance(self, extra: Float[Array, ""]) -> Float[Array, ""]:
        """Return the option, () float64, or its midpoint with 1 if too many trajectories diverge.

        The mean acceptance over a trajectory hides its last point, where the steps were too long for the curvature.
        """
        target = self.options.target_acceptance
        return jnp.where(extra > _MOST_DIVERGENT, (1 + target) / 2, jnp.float64(target))

    def extra_tuning(self, adaptation: Warmup, is_adapting: Bool[Array, ""] | bool) -> Float[Array, ""]:
        """Return the target acceptance, which a step only records."""
        return self.target_acceptance(cast(jax.Array, adaptation.extra))

    def begin(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> Tree:
        """Return trees that hold only the current points of the chains, with new momentum."""
        momentum = self.metric.draw_momentum(key, state.position, target.mask)
        return begin_tree(state, momentum, self.metric, tuning.metric, self.options.max_tree_depth)

    def advance(
        self, key: Key[Array, " chain"], work: Tree, state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> Tree:
        """Take one leapfrog step in every incomplete tree."""
        depth = self.options.max_tree_depth
        return grow(key, work, state, target, self.metric, tuning.metric, tuning.step_size, depth)

    def renew(self, work: Tree, begun: Tree, renews: Bool[Array, " chain"]) -> Tree:
        """Return the trees of `begun` for the chains in `renews`, and those of `work` for the others."""
        # A tree reads no momentum that it has not saved itself.
        chosen = pick(renews, *(each._replace(saved=(Position(None, None),) * 2) for each in (begun, work)))
        return chosen._replace(saved=work.saved)

    def is_complete(self, work: Tree) -> Bool[Array, " chain"]:
        """Return which trajectories have turned, diverged or reached their maximum length."""
        return work.is_done

    def end(self, work: Tree, state: HamiltonianState, tuning: HamiltonianTuning) -> tuple[HamiltonianState, NutsInfo]:
        """Return the points drawn from the trees."""
        drawn = work.whole.drawn
        lp = drawn.log_prior + drawn.log_likelihood
        info = NutsInfo(
            acceptance_rate=work.acceptance_sum / work.count,
            accepted=work.accepted,
            diverging=work.diverging,
            energy=drawn.kinetic - lp,
            lp=lp,
            log_likelihood=drawn.log_likelihood,
            tree_depth=work.depth,
            n_steps=work.count,
            step_size=tuning.step_size,
            target_acceptance=tuning.extra,
            restarted=jnp.zeros_like(work.accepted),
        )
        log_densities = drawn.log_prior, drawn.log_likelihood
        return HamiltonianState(drawn.position, *log_densities, drawn.gradient, state.num_steps + 1), info
