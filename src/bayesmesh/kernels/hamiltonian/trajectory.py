"""One Hamiltonian trajectory for a batch of chains, accepted or rejected.

Momentum is standard normal in the coordinates of the metric. Kinetic energy, log prior and log likelihood are summed
and compared in float64: at a log density of -1e6 a float32 has a resolution of 0.06 nats.

A split trajectory is exact in a normal: a rotation in its coordinates, kicked by the remainder of the target. With a normal
N(m, A A^T) and z = A^-1 (q - m), the energy is split into (z.z + p.p) / 2, whose flow is a rotation of z and p, and the
rest, whose force is A^T times the gradient, plus z (Shahbaba, Lan, Johnson and Neal 2014, "Split Hamiltonian Monte Carlo",
section 2.2). Leapfrog steps must shrink with the number of coordinates even if the target equals that normal; here only the
remainder causes error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from bayesmesh.kernels.base import Position, Statistic, Target, keep_computed, map_parts
from bayesmesh.kernels.hamiltonian.metrics.base import Metric
from bayesmesh.kernels.hamiltonian.random_numbers import Stream, uniform

DIVERGENCE_THRESHOLD = 1000.0
"""Energy error, in nats, beyond which a trajectory counts as divergent (Stan's value)."""

STATISTICS = {
    "acceptance_rate": Statistic("1", "Metropolis acceptance probability of the trajectory."),
    "accepted": Statistic("1", "Whether the proposal was taken."),
    "diverging": Statistic("1", f"Energy error above {DIVERGENCE_THRESHOLD:.0f} nats, or not finite."),
    "energy": Statistic("nat", "Hamiltonian of the point kept."),
    "lp": Statistic("nat", "Log density of the point kept, in unconstrained space."),
    "log_likelihood": Statistic("nat", "Log likelihood of the point kept."),
    "n_steps": Statistic("gradient", "Gradients of the transition."),
    "step_size": Statistic("metric", "Step size in the coordinates of the metric."),
}

RESTARTED = {"restarted": Statistic("1", "Whether the chain went on from the place of another one; only in warmup.")}
"""Additional statistic of kernels that restart lost chains."""


class SplitPoint(NamedTuple):
    """A point in the coordinates z of a normal, from which the position is computed, and the residual force there.

    Attributes:
        white: z, where the position is m + A z.
        force: A^T times the gradient, plus z.
    """

    white: Position
    force: Position


class Normal(NamedTuple):
    """The normal N(m, A A^T) about which steps of `turn` rotate, once it is known.

    Attributes:
        centre: m, a position without the chain axis.
        is_known: () bool; until then, steps are those of leapfrog.
    """

    centre: Position
    is_known: jax.Array


class HamiltonianState(NamedTuple):
    """A point of every chain with its densities and gradient; the checkpoint.

    Attributes:
        position: where the chains are.
        log_prior, log_likelihood: (chain,) float64, nats.
        gradient: of their sum, like the position.
        num_steps: () int32, draws and warmup iterations made so far; drives the jitter of trajectory lengths.
        split: additional state of trajectories that are exact in a normal; None for all others.
    """

    position: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    gradient: Position
    num_steps: jax.Array
    split: SplitPoint | None = None


class Trajectory(NamedTuple):
    """The end of a trajectory, for adaptation: state, momentum and (chain,) acceptance rate."""

    proposal: HamiltonianState
    momentum: Position
    acceptance_rate: jax.Array


class HamiltonianInfo(NamedTuple):
    """Info of a step for diagnostics and adaptation; `STATISTICS` describes its fields, some of which a kernel may leave out.

    Attributes:
        acceptance_rate, energy, lp, log_likelihood: (chain,) float64.
        accepted, diverging, restarted: (chain,) bool; the last of them is set after the step.
        n_steps: () int32. step_size: () or (chain,) float64.
        trajectory: end of the trajectory; not recorded.
        inverse_temperature, log_evidence, effective_share: () float64, of `tempered_smc`.
        ancestor, num_relatives: (chain,) int32, also of `tempered_smc`; the former is not recorded.
    """

    acceptance_rate: jax.Array
    accepted: jax.Array
    lp: jax.Array
    log_likelihood: jax.Array
    n_steps: jax.Array
    step_size: jax.Array
    restarted: jax.Array
    diverging: jax.Array | None = None
    energy: jax.Array | None = None
    trajectory: Trajectory | None = None
    inverse_temperature: jax.Array | None = None
    log_evidence: jax.Array | None = None
    effective_share: jax.Array | None = None
    ancestor: jax.Array | None = None
    num_relatives: jax.Array | None = None


def init_state(position: Position, target: Target) -> HamiltonianState:
    """Return the state at a position, at the cost of one gradient."""
    return HamiltonianState(position, *target.log_density(position), jnp.zeros((), jnp.int32))


def batch_dot(a: Position, b: Position) -> Float[Array, " chain"]:
    """Return the inner product of each chain, (chain,) float64."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    terms = [jnp.sum((x * y).reshape(x.shape[0], -1), axis=1, dtype=jnp.float64) for x, y in pairs]
    return sum(terms[1:], terms[0])


def over_chains(mask: Shaped[Array, "..."], like: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Return a (chain,) array with trailing axes of length 1, to broadcast over an array (chain, ...)."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))


def add_scaled(to: Position, what: Position, factor: Float[Array, " chain"]) -> Position:
    """Return the sum of positions (chain, ...) and others multiplied by a factor per chain."""
    return map_parts(lambda x, y: x + over_chains(factor.astype(x.dtype), x) * y, to, what)


def leapfrog[Data](
    metric: Metric[Data, Any],
    data: Data,
    target: Target,
    step_size: Float[Array, "*chain"],
    at: HamiltonianState,
    momentum: Position,
    force: Position,
) -> tuple[HamiltonianState, Position, Position]:
    """Take one leapfrog step, at the cost of one gradient and one product each with A and A^T.

    Args:
        metric: the kind of metric.
        data: its arrays.
        target: the log density.
        step_size: () or (chain,) float64; a negative one goes backwards in time.
        at: where the chains are.
        momentum: their momentum, standard normal in the coordinates of the metric.
        force: A^T times the gradient there.

    Returns:
        State, momentum and force after the step.
    """
    time = jnp.broadcast_to(step_size, at.log_prior.shape)
    momentum = add_scaled(momentum, force, 0.5 * time)
    at, force = _drift(metric, data, target, time, at, momentum)
    return at, add_scaled(momentum, force, 0.5 * time), force


def turn[Data](
    metric: Metric[Data, Any],
    data: Data,
    normal: Normal,
    target: Target,
    step_size: Float[Array, "*chain"],
    at: HamiltonianState,
    momentum: Position,
    force: Position,
) -> tuple[HamiltonianState, Position, Position]:
    """Take one split step, at the cost of one more product with A^-1 than `leapfrog`, whose arguments and values it has."""
    time = jnp.broadcast_to(step_size, at.log_prior.shape)
    white = metric.whiten_position(data, map_parts(lambda q, m: q - m[None], at.position, normal.centre))
    pull = jnp.where(normal.is_known, 1.0, 0.0)

    def kick(momentum: Position, force: Position, white: Position) -> Position:
        residual = map_parts(lambda f, z: f + pull.astype(z.dtype) * z, force, white)
        return add_scaled(momentum, residual, 0.5 * time)

    turned, momentum = rotate(white, kick(momentum, force, white), time, normal.is_known)
    # The way rather than the place, which would lose digits far from the centre.
    way = map_parts(jnp.subtract, turned, white)
    at, force = _drift(metric, data, target, jnp.ones_like(time), at, way)
    return at, kick(momentum, force, turned), force


def move[Data](
    metric: Metric[Data, Any],
    data: Data,
    target: Target,
    step_size: Float[Array, "*chain"],
    num_steps: Int[Array, ""],
    state: HamiltonianState,
    momentum: Position,
) -> tuple[HamiltonianState, Position]:
    """Take `num_steps` leapfrog steps, at least one, and return the end point and its momentum.

    The half kick at the end of a step and the one at the beginning of the next have the same force and are merged.
    """
    time = jnp.broadcast_to(step_size, state.log_prior.shape)

    def step(index: jax.Array, carry: tuple[HamiltonianState, Position]) -> tuple[HamiltonianState, Position]:
        at, force = _drift(metric, data, target, time, *carry)
        return at, add_scaled(carry[1], force, share_of_kick(index, num_steps) * time)

    begin = add_scaled(momentum, metric.whiten_gradient(data, state.gradient), 0.5 * time)
    return jax.lax.fori_loop(0, num_steps, step, (state, begin))


def _drift[Data](
    metric: Metric[Data, Any],
    data: Data,
    target: Target,
    time: Float[Array, " chain"],
    at: HamiltonianState,
    momentum: Position,
) -> tuple[HamiltonianState, Position]:
    """Return the state that chains reach with constant momentum after some time, and the force there."""
    position = add_scaled(at.position, metric.move(data, momentum), time)
    at = HamiltonianState(position, *target.log_density(position), at.num_steps)
    return at, metric.whiten_gradient(data, at.gradient)


def share_of_kick(index: Int[Array, ""], num_steps: Int[Array, ""]) -> Float[Array, ""]:
    """Return the duration of the kick after a leapfrog step, in steps: 1/2 after the last one, () float64."""
    return jnp.where(index + 1 < num_steps, 1.0, 0.5)


def run_trajectory[Data](
    key: Key[Array, " chain"],
    state: HamiltonianState,
    target: Target,
    metric: Metric[Data, Any],
    data: Data,
    step_size: Float[Array, "*chain"],
    num_leapfrog_steps: Int[Array, ""],
) -> tuple[HamiltonianState, HamiltonianInfo]:
    """Make one Metropolis-corrected Hamiltonian transition (Neal 2011, section 5.3.2).

    Args:
        key: (chain,) typed keys.
        state: where the chains are.
        target: the log density.
        metric: the kind of metric.
        data: its arrays.
        step_size: () or (chain,) float64.
        num_leapfrog_steps: () int32, the same for every chain.

    Returns:
        The next state (a rejected chain keeps its own) and the info.
    """
    momentum = metric.draw_momentum(key, state.position, target.mask)
    proposal, momentum_end = move(metric, data, target, step_size, num_leapfrog_steps, state, momentum)
    return accept_by_energy(key, proposal, state, momentum, momentum_end, num_leapfrog_steps, step_size)


def accept_by_energy(
    key: Key[Array, " chain"],
    proposal: HamiltonianState,
    state: HamiltonianState,
    momentum: Position,
    momentum_end: Position,
    num_gradients: Int[Array, ""],
    step_size: Float[Array, "*chain"],
) -> tuple[HamiltonianState, HamiltonianInfo]:
    """Accept or reject the ends of trajectories by their change in energy.

    Args:
        key: (chain,) typed keys.
        proposal: ends of the trajectories.
        state: where they began.
        momentum: their initial momentum, standard normal in the coordinates of the metric.
        momentum_end: momentum at their ends.
        num_gradients: () int32, gradients that a trajectory took.
        step_size: () float64.

    Returns:
        The next state (a rejected chain keeps its own) and the info.
    """
    kinetic, kinetic_end = 0.5 * batch_dot(momentum, momentum), 0.5 * batch_dot(momentum_end, momentum_end)
    # Difference prior and likelihood separately: each difference is small even if the terms are large.
    log_ratio = (
        (proposal.log_prior - state.log_prior)
        + (proposal.log_likelihood - state.log_likelihood)
        + (kinetic - kinetic_end)
    )
    next_state, info = accept(key, log_ratio, proposal, state, momentum_end, num_gradients, step_size)
    return next_state, info._replace(energy=jnp.where(info.accepted, kinetic_end, kinetic) - info.lp)


def accept(
    key: Key[Array, " chain"],
    log_ratio: Float[Array, " chain"],
    proposal: HamiltonianState,
    state: HamiltonianState,
    momentum: Position,
    num_gradients: Int[Array, ""],
    step_size: Float[Array, "*chain"],
) -> tuple[HamiltonianState, HamiltonianInfo]:
    """Accept or reject proposals (Metropolis et al. 1953).

    Args:
        key: (chain,) typed keys.
        log_ratio: (chain,) float64, log of the Metropolis ratio; non-finite values are rejected.
        proposal: proposed state.
        state: current state.
        momentum: momentum with which the proposal was reached.
        num_gradients: () int32, gradients that the proposal took.
        step_size: () or (chain,) float64.

    Returns:
        The next state (a rejected chain keeps its own) and the info, without energy.
    """
    log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
    log_uniform = jnp.log(uniform(key, Stream.ACCEPT, jnp.zeros((1, 1), jnp.uint32))[:, 0])
    accepted = keep_computed(log_uniform < log_ratio)
    acceptance_rate = jnp.exp(jnp.minimum(log_ratio, 0.0))

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(over_chains(accepted, new), new, old)

    after = jax.tree.map(keep, proposal._replace(num_steps=accepted), state._replace(num_steps=accepted))
    after = after._replace(num_steps=state.num_steps + 1)
    info = HamiltonianInfo(
        acceptance_rate=acceptance_rate,
        accepted=accepted,
        diverging=-log_ratio > DIVERGENCE_THRESHOLD,
        lp=after.log_prior + after.log_likelihood,
        log_likelihood=after.log_likelihood,
        n_steps=num_gradients.astype(jnp.int32),
        step_size=step_size,
        restarted=jnp.zeros_like(accepted),
        trajectory=Trajectory(proposal, momentum, acceptance_rate),
    )
    return after, info


def place_in_normal[Data](
    state: HamiltonianState, metric: Metric[Data, Any], data: Data, centre: Position
) -> HamiltonianState:
    """Return a state with z and the residual force there.

    Args:
        state: where the chains are.
        metric: the kind of metric.
        data: A.
        centre: m, without the chain axis.
    """
    white = metric.whiten_position(data, map_parts(lambda q, m: q - m[None], state.position, centre))
    force = map_parts(jnp.add, metric.whiten_gradient(data, state.gradient), white)
    return state._replace(split=SplitPoint(white, force))


def rotate(
    white: Position, momentum: Position, time: Float[Array, "*chain"], is_known: Bool[Array, ""] | bool = True
) -> tuple[Position, Position]:
    """Return z and p after some time, () or (chain,) float64, under the normal alone; under no force if none `is_known`."""

    def mix(a: jax.Array, x: jax.Array, b: jax.Array, y: jax.Array) -> jax.Array:
        return over_chains(a.astype(x.dtype), x) * x + over_chains(b.astype(x.dtype), x) * y

    cos, sin = jnp.where(is_known, jnp.cos(time), 1.0), jnp.where(is_known, jnp.sin(time), 0.0)
    along = jnp.where(is_known, sin, time)
    turned = map_parts(lambda z, p: mix(cos, z, along, p), white, momentum)
    return turned, map_parts(lambda z, p: mix(cos, p, -sin, z), white, momentum)


def run_split_trajectory[Data](
    key: Key[Array, " chain"],
    state: HamiltonianState,
    target: Target,
    metric: Metric[Data, Any],
    data: Data,
    centre: Position,
    step_size: Float[Array, ""],
    num_steps: Int[Array, ""],
) -> tuple[HamiltonianState, HamiltonianInfo]:
    """Make one Metropolis-corrected transition; each step costs one gradient, one product with A and one with A^T.

    Args:
        key: (chain,) typed keys.
        state: where the chains are.
        target: the log density.
        metric: the kind of metric.
        data: A.
        centre: m, without the chain axis.
        step_size: () float64.
        num_steps: () int32, the same for every chain.

    Returns:
        The next state (a rejected chain keeps its own) and the info.
    """
    momentum = metric.draw_momentum(key, state.position, target.mask)

    def kick(p: Position, force: Position) -> Position:
        return map_parts(lambda x, f: x + (0.5 * step_size).astype(x.dtype) * f, p, force)

    def step(_: jax.Array, carry: tuple[HamiltonianState, Position]) -> tuple[HamiltonianState, Position]:
        at, p = carry
        assert at.split is not None  # set by `place_in_normal`
        white, p = rotate(at.split.white, kick(p, at.split.force), step_size)
        position = map_parts(lambda m, d: m[None] + d, centre, metric.move(data, white))
        density = target.log_density(position)
        force = map_parts(jnp.add, metric.whiten_gradient(data, density.gradient), white)
        return HamiltonianState(position, *density, at.num_steps, SplitPoint(white, force)), kick(p, force)

    proposal, momentum_end = jax.lax.fori_loop(0, num_steps, step, (state, momentum))
    return accept_by_energy(key, proposal, state, momentum, momentum_end, num_steps, step_size)
