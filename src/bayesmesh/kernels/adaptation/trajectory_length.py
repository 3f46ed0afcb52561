"""Trajectory length by gradient ascent on the ChEES criterion.

Hoffman, Radul and Sountsov 2021, "An adaptive-MCMC scheme for setting trajectory lengths in Hamiltonian Monte Carlo",
AISTATS, equations 8 to 11. The criterion is the expected change, over a trajectory, of the squared distance from the
centre of the chains. It is not normalised by trajectory length, and it is differentiated through the end point.
Distances are taken in the coordinates of the metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bayesmesh.kernels.base import Position, keep_computed, map_parts, sum_together
from bayesmesh.kernels.hamiltonian.metrics.base import Metric
from bayesmesh.kernels.hamiltonian.trajectory import Trajectory, over_chains

_LEARNING_RATE, _BETA, _EPSILON = 0.05, 0.95, 1e-8


class LengthState(NamedTuple):
    """State of the search; all fields are () float64.

    Attributes:
        log_length: log of the longest trajectory, in units of step size.
        second_moment: running second moment of its gradient (Adam without momentum).
        count: updates so far.
        log_average: weighted average of `log_length`, used after warmup.
    """

    log_length: jax.Array
    second_moment: jax.Array
    count: jax.Array  # type: ignore[assignment]  # the field shadows tuple.count, which nothing calls
    log_average: jax.Array


def init_length(length: Float[Array, ""] | float) -> LengthState:
    """Start at a trajectory length."""
    log_length = jnp.log(jnp.asarray(length, jnp.float64))
    zero = jnp.zeros((), jnp.float64)
    return LengthState(log_length, zero, zero, log_length)


def halton(index: Int[Array, ""]) -> Float[Array, ""]:
    """Return the base-2 Halton number of a non-negative index, in (0, 1), float64.

    >>> [float(halton(jnp.asarray(i))) for i in (0, 1, 2)]
    [0.5, 0.25, 0.75]
    """
    bits = jnp.arange(31)
    return jnp.sum(((index + 1) >> bits & 1) * 2.0 ** (-bits - 1.0), dtype=jnp.float64)


def _centred(positions: Sequence[Position], weights: Sequence[Float[Array, " chain"]]) -> list[list[jax.Array]]:
    """Return the parts of positions (chain, ...), each centred at its mean over chains, weighted by chain."""
    totals = [weight.sum() for weight in weights]

    def one(*parts: jax.Array) -> list[jax.Array]:
        weighted = (over_chains(w.astype(q.dtype), q) * q for w, q in zip(weights, parts, strict=True))
        sums = sum_together(*weighted, axes=(0,))
        means = (each / total.astype(each.dtype) for each, total in zip(sums, totals, strict=True))
        return [q - mean[None] for q, mean in zip(parts, means, strict=True)]

    return [one(*parts) for parts in zip(*map(jax.tree.leaves, positions), strict=True)]


def _gains(begin: jax.Array, end: jax.Array, velocity: jax.Array) -> tuple[jax.Array, ...]:
    """Return each chain's change in squared distance from the centre, and the inner product of its end and velocity, (chain,) float64."""
    terms = (x.astype(jnp.float64) for x in (end * end - begin * begin, end * velocity))
    return sum_together(*terms, axes=range(1, end.ndim))


def update_length(
    state: LengthState,
    start: Position,
    trajectory: Trajectory,
    metric: Metric[Any, Any],
    data: Any,
    jitter: Float[Array, ""],
) -> LengthState:
    """Make one ascent step on the criterion, from the last trajectories of all chains.

    Args:
        state: state of the search.
        start: (chain, ...) positions where the trajectories began.
        trajectory: ends of the trajectories; a non-finite end has weight 0, and a chain whose acceptance rate is not
            finite is left out.
        metric: the kind of metric.
        data: its arrays.
        jitter: () float64, fraction of the longest trajectory.
    """
    counts = jnp.isfinite(trajectory.acceptance_rate)
    weight = jnp.where(counts, trajectory.acceptance_rate, 0.0)
    counts, weight = keep_computed((counts, weight))
    safe = jnp.maximum(weight, 1e-12)

    def where_counted(value: Position, other: Position) -> Position:
        return map_parts(lambda x, y: jnp.where(over_chains(weight > 0, x), x, y), value, other)

    # Values that are left out may be non-finite, and would make the mean over all chains non-finite.
    start = map_parts(lambda q: jnp.where(over_chains(counts, q), q, 0), start)
    end_position = where_counted(trajectory.proposal.position, start)
    velocity = where_counted(trajectory.momentum, jax.tree.map(jnp.zeros_like, trajectory.momentum))
    white = [metric.whiten_position(data, q) for q in (start, end_position)]
    centred = _centred(white, (jnp.where(counts, 1.0, 1e-12), safe))
    sums = [_gains(begin, end, v) for (begin, end), v in zip(centred, jax.tree.leaves(velocity), strict=True)]
    change, growth = (sum(each[1:], each[0]) for each in zip(*sums, strict=True))
    per_chain = change * growth
    gradient = jitter * jnp.exp(state.log_length) * jnp.sum(weight * per_chain) / jnp.sum(safe)
    gradient = jnp.where(jnp.isfinite(gradient), gradient, 0.0)

    count = state.count + 1
    second_moment = _BETA * state.second_moment + (1 - _BETA) * gradient**2
    unbiased = second_moment / (1 - _BETA**count)
    log_length = state.log_length + jnp.clip(_LEARNING_RATE * gradient / (jnp.sqrt(unbiased) + _EPSILON), -0.35, 0.35)
    average_weight = jnp.maximum(1 / count, 0.1)
    log_average = average_weight * log_length + (1 - average_weight) * state.log_average
    return LengthState(log_length, second_moment, count, log_average)
