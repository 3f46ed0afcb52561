"""One Hamiltonian trajectory for a batch of chains, accepted or rejected.

Momentum is standard normal and positions move by ``step_size * scale * momentum``: a diagonal inverse mass matrix
``scale**2`` (Neal 2011, "MCMC using Hamiltonian dynamics", section 5.4.1). A coordinate with scale 0 has no momentum
and never moves. Kinetic energy, log prior and log likelihood are summed and compared in float64: at a log density of
-1e6 a float32 has a resolution of 0.06 nats.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import LogDensityFn, Position

__all__ = [
    "DIVERGENCE_THRESHOLD",
    "HamiltonianInfo",
    "HamiltonianState",
    "Trajectory",
    "batch_dot",
    "init_state",
    "move",
    "run_trajectory",
    "standard_normal",
]

DIVERGENCE_THRESHOLD = 1000.0
"""Energy error, in nats, beyond which a trajectory counts as divergent (Stan's value)."""


class HamiltonianState(NamedTuple):
    """A point of every chain with all that was computed there; the checkpoint.

    Attributes:
        position: name -> (chain, ...).
        log_prior, log_likelihood: (chain,) float64, nats.
        gradient: like position.
        num_steps: () int32, draws and warmup iterations made so far; drives the jitter of trajectory lengths.
    """

    position: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    gradient: Position
    num_steps: jax.Array


class HamiltonianInfo(NamedTuple):
    """What diagnostics need of a step; becomes `sample_stats`.

    Attributes:
        acceptance_rate: (chain,) Metropolis acceptance probability.
        accepted: (chain,) whether the proposal was taken.
        diverging: (chain,) energy error above `DIVERGENCE_THRESHOLD`, or not finite.
        energy: (chain,) Hamiltonian of the point kept, nats.
        lp: (chain,) log density of the point kept, nats.
        log_likelihood: (chain,) its log likelihood, nats.
        n_steps: () leapfrog steps, each one gradient.
        step_size: () in units of `scale`.
    """

    acceptance_rate: jax.Array
    accepted: jax.Array
    diverging: jax.Array
    energy: jax.Array
    lp: jax.Array
    log_likelihood: jax.Array
    n_steps: jax.Array
    step_size: jax.Array


class Trajectory(NamedTuple):
    """The end of a trajectory, for those who adapt to it."""

    proposal: HamiltonianState
    momentum: Position
    acceptance_rate: jax.Array


def init_state(position: Position, log_density_fn: LogDensityFn) -> HamiltonianState:
    """Return the state at a position; one gradient."""
    return HamiltonianState(position, *log_density_fn(position), jnp.zeros((), jnp.int32))


def batch_dot(a: Position, b: Position) -> jax.Array:
    """Return the inner product of each chain, (chain,) float64."""
    terms = [jnp.sum((a[k] * b[k]).reshape(a[k].shape[0], -1), axis=1, dtype=jnp.float64) for k in sorted(a)]
    return sum(terms[1:], terms[0])


def standard_normal(key: jax.Array, like: Position, scale: Position) -> Position:
    """Draw momentum; values depend on a coordinate's index alone, so padding behind the rows changes none of them."""
    noise = {}
    for i, name in enumerate(sorted(like)):
        shape, dtype = like[name].shape[1:], like[name].dtype
        draw = jax.vmap(
            lambda k, i=i, shape=shape, dtype=dtype: jax.random.normal(jax.random.fold_in(k, i), shape, dtype)
        )
        noise[name] = jnp.where(scale[name] > 0, draw(key), 0)
    return noise


def move(
    state: HamiltonianState,
    momentum: Position,
    scale: Position,
    step_size: jax.Array,
    num_steps: jax.Array,
    log_density_fn: LogDensityFn,
) -> tuple[HamiltonianState, Position]:
    """Take `num_steps` leapfrog steps; returns the end point and its momentum. Each step costs one gradient."""

    def kick(p: Position, gradient: Position, fraction: float) -> Position:
        return {k: p[k] + (fraction * step_size).astype(p[k].dtype) * scale[k] * gradient[k] for k in p}

    def leapfrog(_: int, carry: tuple[HamiltonianState, Position]) -> tuple[HamiltonianState, Position]:
        at, p = carry
        p = kick(p, at.gradient, 0.5)
        position = {k: q + step_size.astype(q.dtype) * scale[k] * p[k] for k, q in at.position.items()}
        at = HamiltonianState(position, *log_density_fn(position), at.num_steps)
        return at, kick(p, at.gradient, 0.5)

    return jax.lax.fori_loop(0, num_steps, leapfrog, (state, momentum))


def run_trajectory(
    key: jax.Array,
    state: HamiltonianState,
    log_density_fn: LogDensityFn,
    scale: Position,
    step_size: jax.Array,
    num_leapfrog_steps: jax.Array,
) -> tuple[HamiltonianState, HamiltonianInfo, Trajectory]:
    """Make one Metropolis-corrected Hamiltonian transition.

    Args:
        key: (chain,) typed keys.
        state: where the chains are.
        log_density_fn: the target.
        scale: name -> (...), no chain axis.
        step_size: () float64.
        num_leapfrog_steps: () int32, the same for every chain.

    Returns:
        The next state (a rejected chain keeps its own), the info, and the trajectory's end.
    """
    key_momentum, key_accept = (jax.vmap(lambda k, i=i: jax.random.fold_in(k, i))(key) for i in range(2))
    momentum = standard_normal(key_momentum, state.position, scale)
    proposal, momentum_end = move(state, momentum, scale, step_size, num_leapfrog_steps, log_density_fn)

    kinetic, kinetic_end = 0.5 * batch_dot(momentum, momentum), 0.5 * batch_dot(momentum_end, momentum_end)
    # Prior and likelihood change separately: their difference is small where each of them is large.
    log_ratio = (
        (proposal.log_prior - state.log_prior)
        + (proposal.log_likelihood - state.log_likelihood)
        + (kinetic - kinetic_end)
    )
    log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
    log_uniform = jnp.log(jax.vmap(lambda k: jax.random.uniform(k, (), jnp.float64))(key_accept))
    accepted = log_uniform < log_ratio
    acceptance_rate = jnp.exp(jnp.minimum(log_ratio, 0.0))

    next_state = _select(accepted, proposal, state)
    lp = next_state.log_prior + next_state.log_likelihood
    info = HamiltonianInfo(
        acceptance_rate=acceptance_rate,
        accepted=accepted,
        diverging=-log_ratio > DIVERGENCE_THRESHOLD,
        energy=jnp.where(accepted, kinetic_end, kinetic) - lp,
        lp=lp,
        log_likelihood=next_state.log_likelihood,
        n_steps=num_leapfrog_steps.astype(jnp.int32),
        step_size=step_size,
    )
    return next_state, info, Trajectory(proposal, momentum_end, acceptance_rate)


def _select(accepted: jax.Array, proposal: HamiltonianState, state: HamiltonianState) -> HamiltonianState:
    """Return the proposal where a chain accepted it, its own state elsewhere, and count one step more."""

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(accepted.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

    moved = jax.tree.map(keep, proposal._replace(num_steps=accepted), state._replace(num_steps=accepted))
    return moved._replace(num_steps=state.num_steps + 1)
