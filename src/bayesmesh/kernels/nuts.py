"""The No-U-Turn sampler for many chains: each finds its own trajectory length without the others.

One step size and one metric serve all chains, as in the other kernels. Chains wait for the longest trajectory among them
during warmup, and where gradients are so cheap that waiting costs less than a turn (`sampling/program/turns.py`).

With `integrator: split`, a step is a rotation about the mean of the draws in the coordinates of the metric, which is exact in
a normal, and kicks by the force that remains (see `hamiltonian.trajectory`). Its length then depends on how far the target is
from a normal, and hardly on the number of coordinates. The mean is learnt with the metric, at the end of every window; before
the first, it is 0 for models on unit scale, and the steps of other models are those of leapfrog.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from bayesmesh.config.settings import Settings
from bayesmesh.kernels.adaptation.warmup import (
    HamiltonianKernel,
    HamiltonianTuning,
    Warmup,
    is_window_end,
    settled_begin,
)
from bayesmesh.kernels.base import COORDINATES, SCALAR, Position, Statistic, TakesTurns, Target, map_parts
from bayesmesh.kernels.hamiltonian.trajectory import RESTARTED, STATISTICS, HamiltonianState, Normal, over_chains
from bayesmesh.kernels.hamiltonian.tree import Saved, Tree, begin_tree, grow, pick
from bayesmesh.kernels.options import NutsOptions as Options

_MOST_DIVERGENT = 5e-4
"""Share of divergent trajectories in warmup above which steps are too long for the posterior."""

_NUM_TRIALS = 10
"""Iterations at the beginning of a window whose divergences do not count, because the search tries steps twice as long."""


_LONGEST_TURN = 0.88
"""Longest split step, in radians. In a normal any step is exact; seven of these are just under a whole turn. Trees of longer ones often end
after three steps, and the squares of coordinates mix half as well."""


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


class LearntNormal(NamedTuple):
    """The normal about which steps turn, and the mean of the positions in the current window.

    Attributes:
        count: () float64, positions seen.
        mean: their mean, without the chain axis.
        normal: that of the last window.
    """

    count: jax.Array  # type: ignore[assignment]  # the field shadows tuple.count, which nothing calls
    mean: Position
    normal: Normal


class NutsAdaptation(NamedTuple):
    """Further adaptation: share of divergent trajectories so far, () float64; the normal, None for leapfrog steps."""

    share: jax.Array
    learnt: LearntNormal | None


class NutsTuning(NamedTuple):
    """Tuning of a tree: the target acceptance, () float64, which a step only records; the normal."""

    target_acceptance: jax.Array
    normal: Normal | None


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
            "n_steps": Statistic("gradient", "Steps of the trajectory, without those for which its chain waits."),
            "target_acceptance": Statistic("1", "Acceptance that the step size is adapted to; warmup may raise it."),
        }
    )

    def __init__(self, options: Settings, num_warmup: int | jax.Array) -> None:
        super().__init__(options, num_warmup)
        self._is_split = self.options.integrator == "split"
        if self._is_split:
            self.longest_step = _LONGEST_TURN

    def expected_gradients(self) -> float:
        """Guess a tree of depth four."""
        return float(2 ** min(4, self.options.max_tree_depth) - 1)

    def most_gradients(self) -> float:
        """Return those of the deepest tree."""
        return float(2**self.options.max_tree_depth - 1)

    def init_adaptation(self, state: HamiltonianState, target: Target) -> Warmup:
        """Return the adaptation before the first iteration."""
        adaptation = super().init_adaptation(state, target)
        learnt = None
        if self._is_split:
            zero = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), state.position)
            learnt = LearntNormal(jnp.zeros(()), zero, Normal(zero, jnp.asarray(target.has_unit_scale)))
        return adaptation._replace(extra=NutsAdaptation(jnp.zeros(()), learnt))

    def adopt(self, adaptation: Warmup, relative: Warmup) -> Warmup:
        """Return the adaptation with the step size, the metric and the normal of other chains; the rest begins anew."""
        own: NutsAdaptation = adaptation.extra
        return super().adopt(adaptation, relative)._replace(extra=own._replace(learnt=relative.extra.learnt))

    def adapt_extra(
        self, adaptation: Warmup, before: HamiltonianState, info: NutsInfo, counts: Bool[Array, " chain"]
    ) -> NutsAdaptation:
        """Count divergent trajectories, once the metric is estimated from the posterior and the first long steps are over.

        The normal moves to the mean of a window when that closes.
        """
        extra: NutsAdaptation = adaptation.extra
        begin = settled_begin(self.num_adaptive)
        is_typical = (before.num_steps >= begin) & (adaptation.step_size.count >= _NUM_TRIALS)
        num_trajectories = len(counts) * jnp.maximum(self.num_adaptive - begin, 1)
        share = extra.share + jnp.sum(info.diverging & counts & is_typical) / num_trajectories
        return NutsAdaptation(share, extra.learnt and self._learn(extra.learnt, before, counts))

    def _learn(self, learnt: LearntNormal, before: HamiltonianState, counts: Bool[Array, " chain"]) -> LearntNormal:
        """Add the positions of the chains that count, (chain,), to the mean."""
        count = learnt.count + counts.sum()

        def towards(mean: jax.Array, position: jax.Array) -> jax.Array:
            away = jnp.where(over_chains(counts, position), position - mean[None], 0)
            return mean + away.sum(0) / jnp.maximum(count, 1).astype(mean.dtype)

        mean = map_parts(towards, learnt.mean, before.position)
        closes = is_window_end(before.num_steps + 1, self.num_adaptive)
        moves = closes & (count > 0)
        normal = jax.tree.map(lambda new, old: jnp.where(moves, new, old), Normal(mean, moves), learnt.normal)
        return LearntNormal(jnp.where(closes, 0.0, count), mean, normal)

    def target_acceptance(self, extra: NutsAdaptation) -> Float[Array, ""]:
        """Return the option, () float64, or its midpoint with 1 if too many trajectories diverge.

        The mean acceptance over a trajectory hides its last point, where the steps were too long for the curvature.
        """
        target = self.options.target_acceptance
        return jnp.where(extra.share > _MOST_DIVERGENT, (1 + target) / 2, jnp.float64(target))

    def extra_tuning(self, adaptation: Warmup, is_adapting: Bool[Array, ""] | bool) -> NutsTuning:
        """Return the target acceptance and the normal."""
        extra: NutsAdaptation = adaptation.extra
        return NutsTuning(self.target_acceptance(extra), extra.learnt and extra.learnt.normal)

    def extra_axes(self) -> NutsAdaptation:
        """Return the axes of the further adaptation."""
        learnt = LearntNormal(SCALAR, COORDINATES, Normal(COORDINATES, SCALAR)) if self._is_split else None  # type: ignore[arg-type]  # axes stand in for arrays
        return NutsAdaptation(SCALAR, learnt)  # type: ignore[arg-type]  # as above

    def begin(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> Tree:
        """Return trees that hold only the current points of the chains, with new momentum."""
        momentum = self.metric.draw_momentum(key, state.position, target.mask)
        return begin_tree(state, momentum, self.metric, tuning.metric, self.options.max_tree_depth)

    def advance(
        self, key: Key[Array, " chain"], work: Tree, state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> Tree:
        """Take one step in every incomplete tree."""
        depth, own = self.options.max_tree_depth, tuning.extra
        return grow(key, work, state, target, self.metric, tuning.metric, tuning.step_size, depth, own.normal)

    def renew(self, work: Tree, begun: Tree, renews: Bool[Array, " chain"]) -> Tree:
        """Return the trees of `begun` for the chains in `renews`, and those of `work` for the others."""
        # A tree reads no momentum that it has not saved itself.
        chosen = pick(renews, *(each._replace(saved=Saved(*(Position(None, None),) * 3)) for each in (begun, work)))
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
            target_acceptance=tuning.extra.target_acceptance,
            restarted=jnp.zeros_like(work.accepted),
        )
        log_densities = drawn.log_prior, drawn.log_likelihood
        return HamiltonianState(drawn.position, *log_densities, drawn.gradient, state.num_steps + 1), info
