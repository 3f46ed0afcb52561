"""HMC within Gibbs, for units that are independent of each other given the rest, such as users given films.

All units of a group move at once, and each has its own accept step, so that the step size depends on the coordinates of
one unit and not on their number. Trajectories longer than a quarter of a period end beyond the conditional mean: such
overrelaxation (Adler 1981; Neal 1998) keeps successive updates of the groups from a random walk. Each unit's coordinates
are scaled by an approximate curvature of its conditional density, which follows the other groups as they move.

A model may add an exact transition along directions that its data do not identify, such as the scale of factors.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key
from pydantic import Field

from bayesmesh.config.settings import Argument, Settings
from bayesmesh.kernels.adaptation.pooling import mean_over
from bayesmesh.kernels.adaptation.step_size import StepSizeState, init_step_size, step_size_in_use, update_step_size
from bayesmesh.kernels.adaptation.trajectory_length import halton
from bayesmesh.kernels.adaptation.windows import is_window_end
from bayesmesh.kernels.base import CHAIN, COORDINATES, POSITION, SCALAR, Axes, Kernel, Position, Statistic, Target
from bayesmesh.kernels.hamiltonian.trajectory import DIVERGENCE_THRESHOLD, STATISTICS, over_chains
from bayesmesh.kernels.targets.units import Conditional, Units, UnitScale, units_of


class Options(Settings):
    """Options of `unit_hmc`."""

    rounds: int = Field(1, ge=1, le=1000, description="Updates of every group of units in a draw.")
    trajectory_length: Argument[float] = Field(
        2.65,
        gt=0,
        le=1e6,
        description="Length of a trajectory in units of the conditional standard deviations. 1.57 ends in an independent draw "
        "given the other groups, more beyond the conditional mean.",
    )
    max_leapfrog_steps: Argument[int] = Field(
        16, ge=1, le=100_000, description="Most leapfrog steps of a trajectory, which is shortened to fit."
    )
    jitter: Argument[float] = Field(
        0.1, ge=0, lt=1, description="Largest part by which the steps of a trajectory are longer or shorter (no unit)."
    )
    initial_step_size: Argument[float] = Field(
        0.5, gt=0, le=1e6, description="Step size at the first iteration, in conditional standard deviations."
    )
    target_acceptance: Argument[float] = Field(
        0.85, gt=0, lt=1, description="Mean acceptance over units that the step size of each group is adapted to."
    )


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
    """Tuning of a step: (group,) float64 step sizes, and the information about units, without the chain axis."""

    step_size: jax.Array
    information: Position


class UnitAdaptation(NamedTuple):
    """Adaptation: a search for a step size for each group, and the information about units where it was last measured."""

    step_size: StepSizeState
    information: Position


class UnitInfo(NamedTuple):
    """Info of a step; `UnitHmc.statistics` lists the recorded fields.

    Attributes:
        acceptance_rate, lp, log_likelihood: (chain,) float64.
        accepted, diverging: (chain,) bool.
        n_steps: () int32. step_size: () float64.
        group_acceptance: (chain, group) float64, for adaptation.
    """

    acceptance_rate: jax.Array
    accepted: jax.Array
    diverging: jax.Array
    lp: jax.Array
    log_likelihood: jax.Array
    n_steps: jax.Array
    step_size: jax.Array
    group_acceptance: jax.Array


class Moved(NamedTuple):
    """What became of a group: positions, and of each chain, (chain,), densities, acceptance and what happened to any unit."""

    position: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    acceptance: jax.Array
    accepted: jax.Array
    diverging: jax.Array


class UnitHmc(Kernel[UnitState, UnitTuning, UnitInfo, UnitAdaptation]):
    """HMC of conditionally independent units, each with its own accept step."""

    pretty_name = "HMC by units"
    reference = "Duane et al. 1987; overrelaxation: Adler 1981, Neal 1998"
    statistics = {k: STATISTICS[k] for k in ("lp", "log_likelihood")} | {
        "acceptance_rate": Statistic("1", "Metropolis acceptance probability, averaged over units and groups."),
        "accepted": Statistic("1", "Whether any unit took its proposal."),
        "diverging": Statistic(
            "1", f"A unit with an energy error above {DIVERGENCE_THRESHOLD:.0f} nats, or not finite."
        ),
        "n_steps": Statistic("gradient", "Passes over the data, each with the gradient by one group of units."),
        "step_size": Statistic("conditional sd", "Geometric mean of the step sizes of the groups."),
    }

    def expected_gradients(self) -> float:
        """One pass at the start of each trajectory and one a step, for two groups."""
        options = self.options
        steps = min(options.max_leapfrog_steps, options.trajectory_length / options.initial_step_size)
        return float(2 * options.rounds * (steps + 1))

    def init(self, key: Key[Array, " chain"], position: Position, target: Target) -> UnitState:
        """Return the state at a position; needs one gradient and no randomness."""
        del key
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
        # A single step may be longer than that.
        even = jnp.where(num_steps > 1, options.trajectory_length / num_steps, step_size)
        size = jnp.minimum(step_size, even)

        def one_round(number: Int[Array, ""], carry: tuple[Moved, jax.Array]) -> tuple[Moved, jax.Array]:
            before, acceptance = carry
            keys = _fold(key, number)
            at, change = units.redraw(_fold(keys, units.num_groups), before.position)
            now, moved = before._replace(position=at, log_prior=before.log_prior + change), []
            jitter = 1 + options.jitter * (2 * halton(state.num_steps * options.rounds + number) - 1)
            for group in range(units.num_groups):
                conditional = units.given(now.position, group)
                scale = conditional.scale(tuning.information)
                found = _move(_fold(keys, group), conditional, scale, size[group] * jitter, num_steps[group])
                now = found._replace(log_prior=now.log_prior + found.log_prior)
                moved.append(now)
            accepted, diverging = (
                jnp.stack([getattr(m, name) for m in (before, *moved)]).any(axis=0)
                for name in ("accepted", "diverging")
            )
            acceptance = acceptance + jnp.stack([m.acceptance for m in moved], axis=1) / options.rounds
            return now._replace(accepted=accepted, diverging=diverging), acceptance

        nowhere, zero = jnp.zeros(state.log_prior.shape, bool), jnp.zeros_like(state.log_prior)
        begin = Moved(state.position, state.log_prior, state.log_likelihood, zero, nowhere, nowhere)
        none = jnp.broadcast_to(zero[:, None], (*zero.shape, units.num_groups))
        moved, acceptance = jax.lax.fori_loop(0, options.rounds, one_round, (begin, none))
        after = UnitState(moved.position, moved.log_prior, moved.log_likelihood, state.num_steps + 1)
        info = UnitInfo(
            acceptance_rate=acceptance.mean(axis=1),
            accepted=moved.accepted,
            diverging=moved.diverging,
            lp=moved.log_prior + moved.log_likelihood,
            log_likelihood=moved.log_likelihood,
            n_steps=(options.rounds * jnp.sum(num_steps + 1)).astype(jnp.int32),
            step_size=jnp.exp(jnp.mean(jnp.log(step_size))),
            group_acceptance=acceptance,
        )
        return after, info

    def init_adaptation(self, state: UnitState, target: Target) -> UnitAdaptation:
        """Return the adaptation before the first iteration, with the information where the chains start."""
        units = units_of(target)
        step_size = init_step_size(self.options.initial_step_size * jnp.ones(units.num_groups), 1.0)
        return UnitAdaptation(step_size, _measure(units, state))

    def adapt(
        self, adaptation: UnitAdaptation, before: UnitState, after: UnitState, info: UnitInfo, target: Target
    ) -> UnitAdaptation:
        """Adapt step sizes; at the end of a window of warmup, measure the information again."""
        del before
        counts = jnp.isfinite(info.lp)
        acceptance = jax.vmap(lambda a: mean_over(a, counts), in_axes=1)(info.group_acceptance)
        step_size = update_step_size(adaptation.step_size, acceptance, self.options.target_acceptance)
        information = jax.lax.cond(
            is_window_end(after.num_steps, self.num_adaptive),
            lambda: _measure(units_of(target), after),
            lambda: adaptation.information,
        )
        return UnitAdaptation(step_size, information)

    def tuning(self, adaptation: UnitAdaptation, is_adapting: Bool[Array, ""] | bool) -> UnitTuning:
        """Return the step sizes in use while adapting, their averages afterwards, with the information."""
        return UnitTuning(step_size_in_use(adaptation.step_size, is_adapting), adaptation.information)

    def state_axes(self) -> UnitState:
        """Return the axes of a state."""
        return UnitState(POSITION, CHAIN, CHAIN, SCALAR)  # type: ignore[arg-type]  # axes in the places of arrays

    def adaptation_axes(self) -> UnitAdaptation:
        """Return the axes of an adaptation."""
        step_size: StepSizeState = jax.tree.map(lambda _: Axes(None), jax.eval_shape(init_step_size, 1.0))
        return UnitAdaptation(step_size, COORDINATES)


def _move(
    key: Key[Array, " chain"],
    conditional: Conditional,
    scale: UnitScale,
    step_size: Float[Array, ""],
    num_steps: Int[Array, ""],
) -> Moved:
    """Make one Metropolis-corrected trajectory of each unit of a group; of the log prior the change is returned.

    Args:
        key: (chain,) typed keys.
        conditional: the units, given the rest.
        scale: of their coordinates; it must not depend on them.
        step_size: () float64.
        num_steps: () int32, the same for every unit.
    """
    key_momentum, key_accept = (_fold(key, i) for i in range(2))
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

    # Only the ends of a trajectory need values: passes between them are shorter.
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
    rate = jnp.where(is_unit, jnp.exp(jnp.minimum(log_ratio, 0)), 0).sum(axis=1)
    log_likelihood = jnp.where(accepted, end.log_likelihood, begin.log_likelihood)
    return Moved(
        position=conditional.place(jnp.where(over_chains(accepted, at), at, start)),
        log_prior=jnp.where(accepted, end.log_prior - begin.log_prior, 0).sum(axis=1),
        log_likelihood=jnp.where(is_unit, log_likelihood, 0).sum(axis=1),
        acceptance=rate / is_unit.sum(axis=1),
        accepted=accepted.any(axis=1),
        diverging=(is_unit & (-log_ratio > DIVERGENCE_THRESHOLD)).any(axis=1),
    )


def _kinetic(momentum: Float[Array, "chain unit k"]) -> Float[Array, "chain unit"]:
    return 0.5 * jnp.sum(jnp.square(momentum), axis=2, dtype=jnp.float64)


def _measure(units: Units, state: UnitState) -> Position:
    """Return the mean information over the chains of finite density, without the chain axis."""
    counts = jnp.isfinite(state.log_prior + state.log_likelihood)

    def mean(x: jax.Array) -> jax.Array:
        return jnp.where(over_chains(counts, x), x, 0).sum(axis=0) / jnp.maximum(counts.sum(), 1).astype(x.dtype)

    return jax.tree.map(mean, units.information(state.position))


def _fold(key: Key[Array, " chain"], number: int | Int[Array, ""]) -> Key[Array, " chain"]:
    return jax.vmap(lambda k: jax.random.fold_in(k, number))(key)
