"""HMC within Gibbs, for units that are independent of each other given the rest, such as users given films.

All units of a group move at once, and each has its own accept step, so that the step size depends on the coordinates of
one unit and not on the number of units. Trajectories longer than a quarter of a period end beyond the conditional mean.
Such overrelaxation (Adler 1981; Neal 1998) keeps successive updates of the groups from being a random walk. Each unit's
coordinates are scaled by an approximate curvature of its conditional density, which follows the other groups as they
move. Warmup inflates the curvature of units that seldom accept.

A model may add an exact transition along directions that its data do not identify, such as the scale of factors.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bayesmesh.kernels.adaptation.step_size import (
    StepSizeState,
    init_step_size,
    mean_over,
    step_size_in_use,
    update_step_size,
)
from bayesmesh.kernels.adaptation.trajectory_length import halton
from bayesmesh.kernels.adaptation.warmup import is_window_end
from bayesmesh.kernels.base import CHAIN, COORDINATES, POSITION, SCALAR, Axes, Kernel, Position, Statistic, Target
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.kernels.hamiltonian.trajectory import DIVERGENCE_THRESHOLD, STATISTICS, over_chains
from bayesmesh.kernels.options import UnitHmcOptions as Options
from bayesmesh.kernels.targets import Conditional, Units, UnitScale, units_of

_LEAST = 0.8
"""Units that accept less than this fraction of the target get smaller scales. It is below 1 because units differ: if each
were held to the target for their mean, step sizes would grow until all were at the target."""

_GAIN, _GAIN_EXPONENT, _MOST_INFLATED = 2.0, -0.6, 6.0
"""Gains of the search for a unit's log inflation: factor, and power of the number of iterations; and the largest log inflation."""

_CAUTION = 0.95
"""Fraction of the adapted step size that draws use. Acceptance jumps where the number of steps changes, so that the search
often ends there; draws then use the larger number."""


class UnitState(NamedTuple):
    """A point of every chain with its densities; the checkpoint.

    Attributes:
        position: where the chains are.
        log_prior, log_likelihood: (chain,) float64, nats.
        num_steps: () int32, draws and warmup iterations made so far; drives the jitter.
    """

    position: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    num_steps: jax.Array


class UnitTuning(NamedTuple):
    """Tuning of a step: (group,) float64 step sizes, and the information that scales units, without the chain axis."""

    step_size: jax.Array
    information: Position


class UnitAdaptation(NamedTuple):
    """Adaptation of step sizes and of the scale of each unit; positions are without the chain axis.

    Attributes:
        step_size: a search for each group.
        information: largest information about each unit in the previous window of warmup.
        largest: the same in the current window so far.
        log_inflation: log of the factor by which a unit's information is inflated; not negative.
    """

    step_size: StepSizeState
    information: Position
    largest: Position
    log_inflation: Position


class UnitInfo(NamedTuple):
    """Info of a step; `UnitHmc.statistics` lists the recorded fields.

    Attributes:
        acceptance_rate, lp, log_likelihood, divergent_share: (chain,) float64.
        accepted, diverging: (chain,) bool.
        n_steps: () int32. step_size: () float64.
        group_acceptance: (chain, group) float64, for adaptation.
        unit_acceptance: acceptance of each unit, at its coordinates; for adaptation.
    """

    acceptance_rate: jax.Array
    accepted: jax.Array
    diverging: jax.Array
    lp: jax.Array
    log_likelihood: jax.Array
    n_steps: jax.Array
    step_size: jax.Array
    divergent_share: jax.Array
    group_acceptance: jax.Array
    unit_acceptance: Position


class Moved(NamedTuple):
    """The result of moving a group.

    Attributes:
        position: position with all coordinates.
        log_prior: (chain,) float64, change in log prior.
        log_likelihood: (chain,) float64.
        acceptance: (chain, unit) float64, 1 for padding.
        accepted, diverging: (chain, unit) bool, False for padding.
        is_unit: (chain, unit) bool, False for padding.
    """

    position: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    acceptance: jax.Array
    accepted: jax.Array
    diverging: jax.Array
    is_unit: jax.Array


class Tally(NamedTuple):
    """What happened to the units in the rounds of a draw so far.

    Attributes:
        acceptance: (chain, group) float64, summed over rounds.
        of_units: acceptance of each unit at its coordinates, (chain, ...), summed over rounds.
        accepted: (chain,) bool, whether any unit accepted.
        divergent: (chain,) float64, number of divergent trajectories.
        trajectories: (chain,) float64, number of all trajectories.
    """

    acceptance: jax.Array
    of_units: Position
    accepted: jax.Array
    divergent: jax.Array
    trajectories: jax.Array


class UnitHmc(Kernel[UnitState, UnitTuning, UnitInfo, UnitAdaptation]):
    """HMC of conditionally independent units, each with its own accept step."""

    pretty_name = "HMC by units"
    options: Options
    reference = "Duane et al. 1987; overrelaxation: Adler 1981, Neal 1998"
    statistics = {k: STATISTICS[k] for k in ("lp", "log_likelihood")} | {
        "acceptance_rate": Statistic("1", "Metropolis acceptance probability, averaged over units and groups."),
        "accepted": Statistic("1", "Whether any unit took its proposal."),
        "diverging": Statistic(
            "1", f"Whether any unit had an energy error above {DIVERGENCE_THRESHOLD:.0f} nats, or not finite."
        ),
        "divergent_share": Statistic("1", "Share of the draw's trajectories that diverged: of each unit, one a round."),
        "n_steps": Statistic("gradient", "Passes over the data, each with the gradient by one group of units."),
        "step_size": Statistic("conditional sd", "Geometric mean of the step sizes of the groups."),
    }

    def num_iterations(self, state: UnitState) -> jax.Array:
        """Return the number of iterations, () int32."""
        return state.num_steps

    def at_iteration(self, state: UnitState, number: jax.Array) -> UnitState:
        """Return the state with its number of iterations, () int32."""
        return state._replace(num_steps=number)

    def expected_gradients(self) -> float:
        """Return one pass at the start of each trajectory and one per step, for two groups."""
        options = self.options
        steps = min(options.max_leapfrog_steps, options.trajectory_length / options.initial_step_size)
        return float(2 * options.rounds * (steps + 1))

    def most_gradients(self) -> float:
        """Return those of the longest trajectories."""
        return float(2 * self.options.rounds * (self.options.max_leapfrog_steps + 1))

    def init(self, key: Key[Array, " chain"], position: Position, target: Target) -> UnitState:
        """Return the state at a position; needs one gradient and no randomness."""
        log_prior, log_likelihood, _ = target.log_density(position)
        return UnitState(position, log_prior, log_likelihood, jnp.zeros((), jnp.int32))

    def step(
        self, key: Key[Array, " chain"], state: UnitState, target: Target, tuning: UnitTuning
    ) -> tuple[UnitState, UnitInfo]:
        """Update all groups in turn, `rounds` times."""
        units, options = units_of(target), self.options
        step_size = jnp.broadcast_to(tuning.step_size, (units.num_groups,))
        num_steps = jnp.ceil(options.trajectory_length / step_size)
        num_steps = jnp.clip(num_steps, 1, options.max_leapfrog_steps).astype(jnp.int32)
        # A single step may be longer than the trajectory length.
        even = jnp.where(num_steps > 1, options.trajectory_length / num_steps, step_size)
        size = jnp.minimum(step_size, even)

        def one_round(number: Int[Array, ""], carry: tuple[UnitState, Tally]) -> tuple[UnitState, Tally]:
            now, tally = carry
            keys = fold(key, number)
            position, change = units.redraw(fold(keys, units.num_groups), now.position)
            now = now._replace(position=position, log_prior=now.log_prior + change)
            jitter = 1 + options.jitter * (2 * halton(state.num_steps * options.rounds + number) - 1)
            for group in range(units.num_groups):
                conditional = units.given(now.position, group)
                scale = conditional.scale(tuning.information)
                moved = _move(fold(keys, group), conditional, scale, size[group] * jitter, num_steps[group])
                log_prior = now.log_prior + moved.log_prior
                now = now._replace(position=moved.position, log_prior=log_prior, log_likelihood=moved.log_likelihood)
                tally = _count(tally, units, group, moved)
            return now, tally

        after, tally = jax.lax.fori_loop(0, options.rounds, one_round, (state, _no_tally(state, units)))
        acceptance = tally.acceptance / options.rounds
        info = UnitInfo(
            acceptance_rate=acceptance.mean(axis=1),
            accepted=tally.accepted,
            diverging=tally.divergent > 0,
            lp=after.log_prior + after.log_likelihood,
            log_likelihood=after.log_likelihood,
            n_steps=(options.rounds * jnp.sum(num_steps + 1)).astype(jnp.int32),
            step_size=jnp.exp(jnp.mean(jnp.log(step_size))),
            divergent_share=tally.divergent / tally.trajectories,
            group_acceptance=acceptance,
            unit_acceptance=jax.tree.map(lambda x: x / options.rounds, tally.of_units),
        )
        return after._replace(num_steps=state.num_steps + 1), info

    def init_adaptation(self, state: UnitState, target: Target) -> UnitAdaptation:
        """Return the adaptation before the first iteration, with the information at the starting points."""
        units = units_of(target)
        step_size = init_step_size(self.options.initial_step_size * jnp.ones(units.num_groups), 1.0)
        information = _measure(units, state)
        zero = jax.tree.map(jnp.zeros_like, information)
        return UnitAdaptation(step_size, information, zero, zero)

    def adapt(
        self, adaptation: UnitAdaptation, before: UnitState, after: UnitState, info: UnitInfo, target: Target
    ) -> UnitAdaptation:
        """Adapt step sizes and the inflation of each unit; at the end of a window of warmup, replace the information.

        The inflation follows Robbins and Monro 1951: it grows while a unit's acceptance is below a share of the target.
        """
        counts = jnp.isfinite(info.lp)
        acceptance = jax.vmap(lambda a: mean_over(a, counts), in_axes=1)(info.group_acceptance)
        step_size = update_step_size(adaptation.step_size, acceptance, self.options.target_acceptance)
        least = _LEAST * self.options.target_acceptance
        gain = _GAIN * after.num_steps.astype(jnp.float64) ** _GAIN_EXPONENT

        def inflate(log_inflation: jax.Array, of_chains: jax.Array) -> jax.Array:
            change = gain * jnp.where(counts.any(), least - _mean_of(of_chains, counts), 0)
            return jnp.clip(log_inflation + change, 0, _MOST_INFLATED).astype(log_inflation.dtype)

        inflation = jax.tree.map(inflate, adaptation.log_inflation, info.unit_acceptance)
        largest = jax.tree.map(jnp.maximum, adaptation.largest, _measure(units_of(target), after))
        closes = is_window_end(after.num_steps, self.num_adaptive)
        information = jax.tree.map(lambda new, old: jnp.where(closes, new, old), largest, adaptation.information)
        largest = jax.tree.map(lambda x: jnp.where(closes, 0, x), largest)
        return UnitAdaptation(step_size, information, largest, inflation)

    def tuning(self, adaptation: UnitAdaptation, is_adapting: Bool[Array, ""] | bool) -> UnitTuning:
        """Return the step sizes in use while adapting, a little less than their averages afterwards, and the information."""
        step_size = step_size_in_use(adaptation.step_size, is_adapting) * jnp.where(is_adapting, 1.0, _CAUTION)
        inflated = jax.tree.map(lambda x, log: x * jnp.exp(log), adaptation.information, adaptation.log_inflation)
        return UnitTuning(step_size, inflated)

    def state_axes(self) -> UnitState:
        """Return the axes of a state."""
        return UnitState(POSITION, CHAIN, CHAIN, SCALAR)  # type: ignore[arg-type]  # axes stand in for arrays

    def adaptation_axes(self) -> UnitAdaptation:
        """Return the axes of an adaptation."""
        step_size: StepSizeState = jax.tree.map(lambda _: Axes(None), jax.eval_shape(init_step_size, 1.0))
        return UnitAdaptation(step_size, COORDINATES, COORDINATES, COORDINATES)


def _move(
    key: Key[Array, " chain"],
    conditional: Conditional,
    scale: UnitScale,
    step_size: Float[Array, ""],
    num_steps: Int[Array, ""],
) -> Moved:
    """Make one Metropolis-corrected trajectory of each unit of a group; the returned `log_prior` is its change.

    Args:
        key: (chain,) typed keys.
        conditional: the units, given the rest.
        scale: scale of their coordinates, on which it must not depend.
        step_size: () float64.
        num_steps: () int32, the same for every unit.
    """
    key_momentum, key_accept = (fold(key, i) for i in range(2))
    start, step = conditional.start, step_size.astype(conditional.start.dtype)
    momentum = jax.vmap(lambda k: jax.random.normal(k, start.shape[1:], start.dtype))(key_momentum)
    begin = conditional.density(start)

    def drift(at: jax.Array, momentum: jax.Array) -> jax.Array:
        return at + step * scale.move(momentum)

    def kick(momentum: jax.Array, gradient: jax.Array) -> jax.Array:
        return momentum + step * scale.whiten(gradient)

    def leap(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, momentum = carry
        at = drift(at, momentum)
        return at, kick(momentum, conditional.gradient(at))

    # Only the ends of a trajectory need values, so the passes between them are shorter.
    half = momentum + 0.5 * step * scale.whiten(begin.gradient)
    at, half = jax.lax.fori_loop(0, num_steps - 1, leap, (start, half))
    at = drift(at, half)
    end = conditional.density(at)
    momentum_end = half + 0.5 * step * scale.whiten(end.gradient)

    log_ratio = (
        (end.log_prior - begin.log_prior)
        + (end.log_likelihood - begin.log_likelihood)
        + (_kinetic(momentum) - _kinetic(momentum_end))
    )
    is_unit = (scale.stretch > 0).any(axis=2)
    log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
    log_uniform = jnp.log(jax.vmap(lambda k: jax.random.uniform(k, is_unit.shape[1:], jnp.float64))(key_accept))
    accepted = (log_uniform < log_ratio) & is_unit
    log_likelihood = jnp.where(accepted, end.log_likelihood, begin.log_likelihood)
    return Moved(
        position=conditional.place(jnp.where(over_chains(accepted, at), at, start)),
        log_prior=jnp.where(accepted, end.log_prior - begin.log_prior, 0).sum(axis=1),
        log_likelihood=jnp.where(is_unit, log_likelihood, 0).sum(axis=1),
        acceptance=jnp.where(is_unit, jnp.exp(jnp.minimum(log_ratio, 0)), 1),
        accepted=accepted,
        diverging=is_unit & (-log_ratio > DIVERGENCE_THRESHOLD),
        is_unit=is_unit,
    )


def _no_tally(state: UnitState, units: Units) -> Tally:
    """Return the tally before the first round."""
    zero = jnp.zeros_like(state.log_prior)
    each = jnp.broadcast_to(zero[:, None], (*zero.shape, units.num_groups))
    return Tally(each, jax.tree.map(jnp.zeros_like, state.position), jnp.zeros(zero.shape, bool), zero, zero)


def _count(tally: Tally, units: Units, group: int, moved: Moved) -> Tally:
    """Add the result of moving a group to the tally."""
    num_units = moved.is_unit.sum(axis=1, dtype=jnp.float64)
    mean = jnp.where(moved.is_unit, moved.acceptance, 0).sum(axis=1) / num_units
    return Tally(
        acceptance=tally.acceptance.at[:, group].add(mean),
        of_units=units.add(tally.of_units, group, moved.acceptance),
        accepted=tally.accepted | moved.accepted.any(axis=1),
        divergent=tally.divergent + moved.diverging.sum(axis=1, dtype=jnp.float64),
        trajectories=tally.trajectories + num_units,
    )


def _kinetic(momentum: Float[Array, "chain unit k"]) -> Float[Array, "chain unit"]:
    return 0.5 * jnp.sum(jnp.square(momentum), axis=2, dtype=jnp.float64)


def _measure(units: Units, state: UnitState) -> Position:
    """Return the mean information over the chains with finite density, without the chain axis."""
    counts = jnp.isfinite(state.log_prior + state.log_likelihood)
    return jax.tree.map(lambda x: _mean_of(x, counts), units.information(state.position))


def _mean_of(x: Float[Array, "..."], counts: Bool[Array, " chain"]) -> Float[Array, "..."]:
    """Return the mean over the chains that count; 0 if none does."""
    return jnp.where(over_chains(counts, x), x, 0).sum(axis=0) / jnp.maximum(counts.sum(), 1).astype(x.dtype)
