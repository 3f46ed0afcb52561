"""Trajectory length by gradient ascent on the ChEES criterion.

Hoffman, Radul and Sountsov 2021, "An adaptive-MCMC scheme for setting trajectory lengths in Hamiltonian Monte Carlo",
AISTATS, equations 8 to 11: the expected change, over a trajectory, of the squared distance from the centre of the
chains, divided by nothing and differentiated through the end point. Distances are taken in preconditioned units.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState, Trajectory, batch_dot

__all__ = ["LengthState", "halton", "init_length", "update_length"]

_LEARNING_RATE, _BETA, _EPSILON = 0.05, 0.95, 1e-8


class LengthState(NamedTuple):
    """All () float64.

    Attributes:
        log_length: log of the longest trajectory, in units of step size x scale.
        second_moment: running second moment of its gradient (Adam without momentum).
        count: updates so far.
        log_average: weighted average of `log_length`, which is what remains after warmup.
    """

    log_length: jax.Array
    second_moment: jax.Array
    count: jax.Array
    log_average: jax.Array


def init_length(length: jax.Array | float) -> LengthState:
    """Start at a trajectory length."""
    log_length = jnp.log(jnp.asarray(length, jnp.float64))
    zero = jnp.zeros((), jnp.float64)
    return LengthState(log_length, zero, zero, log_length)


def halton(index: jax.Array) -> jax.Array:
    """Return the base-2 Halton number of a non-negative index, in (0, 1), float64.

    >>> [float(halton(jnp.asarray(i))) for i in (0, 1, 2)]
    [0.5, 0.25, 0.75]
    """
    bits = jnp.arange(31)
    return jnp.sum(((index + 1) >> bits & 1) * 2.0 ** (-bits - 1.0), dtype=jnp.float64)


def _centred(position: Position, scale: Position, weight: jax.Array) -> Position:
    """Positions in preconditioned units about their weighted mean; padding stays at 0."""

    def one(q: jax.Array, s: jax.Array) -> jax.Array:
        white = jnp.where(s > 0, q / jnp.where(s > 0, s, 1), 0)
        w = weight.astype(q.dtype).reshape((-1,) + (1,) * (q.ndim - 1))
        return white - (w * white).sum(0) / w.sum()

    return {k: one(position[k], scale[k]) for k in position}


def update_length(
    state: LengthState, before: HamiltonianState, trajectory: Trajectory, scale: Position, jitter: jax.Array
) -> LengthState:
    """Climb the criterion by one step, from the trajectories that all chains just made.

    A trajectory that ended in a non-finite place has weight 0.
    """
    weight = jnp.where(jnp.isfinite(trajectory.acceptance_rate), trajectory.acceptance_rate, 0.0)
    safe = jnp.maximum(weight, 1e-12)
    end_position = {
        k: jnp.where((weight > 0).reshape((-1,) + (1,) * (q.ndim - 1)), q, before.position[k])
        for k, q in trajectory.proposal.position.items()
    }
    start = _centred(before.position, scale, jnp.ones_like(weight))
    end = _centred(end_position, scale, safe)
    velocity = {
        k: jnp.where((weight > 0).reshape((-1,) + (1,) * (v.ndim - 1)), v, 0) for k, v in trajectory.momentum.items()
    }
    change = batch_dot(end, end) - batch_dot(start, start)
    per_chain = change * batch_dot(end, velocity)
    gradient = jitter * jnp.exp(state.log_length) * jnp.sum(weight * per_chain) / jnp.sum(safe)
    gradient = jnp.where(jnp.isfinite(gradient), gradient, 0.0)

    count = state.count + 1
    second_moment = _BETA * state.second_moment + (1 - _BETA) * gradient**2
    unbiased = second_moment / (1 - _BETA**count)
    log_length = state.log_length + jnp.clip(_LEARNING_RATE * gradient / (jnp.sqrt(unbiased) + _EPSILON), -0.35, 0.35)
    average_weight = jnp.maximum(1 / count, 0.1)
    log_average = average_weight * log_length + (1 - average_weight) * state.log_average
    return LengthState(log_length, second_moment, count, log_average)
