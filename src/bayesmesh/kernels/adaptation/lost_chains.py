"""Find lost chains: those that do not count in pooled adaptation, and those that warmup leaves in a mode of negligible mass.

Chains far below the others and chains that do not move are left out of what all adapt to. For those in a mode of negligible
mass, chains are chosen whose positions they take instead. The log mass of a mode is the mean of the log density there plus the entropy. A normal has the largest entropy that the
variances V allow, and the smallest that the mean squares F of the gradient allow (Stam 1959, doi:10.1016/S0019-9958(59)90348-1),
so that for d coordinates

    mean lp - sum(log F) / 2  <=  log mass - d log(2 pi e) / 2  <=  mean lp + sum(log V) / 2.

V and 1 / F are both taken from the draws of one chain in one window; they are equal in a normal with independent coordinates.
They differ while the chain has not explored its mode, so the smaller of the two enters the lower bound and the larger the
upper one. The upper bound takes the highest log density in place of the mean, so that a chain in transit is not judged by
where it came from. A wide mode therefore keeps its chains, however low its density.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayesmesh.kernels.base import CHAIN, POSITION, SCALAR, Position, map_parts, sum_together

_MARGIN, _DEVIATIONS = 10.0, 10.0
"""Nats, and median deviations, from which a chain is far below the others."""

_FORGETS = 0.1
"""Weight of the newest iteration in the running acceptance of a chain."""

_STUCK = 0.1
"""A chain is stuck if its running acceptance is below this fraction of the median."""

_NATS, _NATS_PER_COORDINATE = 10.0, 1.0
"""Nats of log mass below another mode from which a mode is negligible; widths may be wrong by a factor of e in each coordinate."""

FEWEST_DRAWS = 20
"""Fewest iterations of a window after which chains may restart."""

_FEWEST_CHAINS, _SHARE = 2, 0.25
"""Fewest chains, and smallest share of all chains, that must be in modes of at least the log mass that others are compared with."""

_MOST_TREND = 1 / 3
"""Squared correlation of a chain's log density with time from which the chain may still be in transit and is left alone."""

_MOST_WINDOWS = 10.0
"""Windows as long as the current one within which a chain in transit arrives; the rest of warmup is shorter."""


class Seen(NamedTuple):
    """Statistics of each chain in the current window, and where it continues.

    Attributes:
        count: () float64, iterations.
        lp, highest, lp_square, lp_time: (chain,) float64: mean and largest log density, the sum of squared deviations
            from the mean, and the sum of products of these deviations with those of the iteration number.
        mean, square, gradient: (chain, ...) mean of the position, sum of its squared deviations, mean squared gradient.
        source: (chain,) int32, the chain from whose position each continues; itself except at the end of a window.
    """

    count: jax.Array  # type: ignore[assignment]  # the field shadows tuple.count, which nothing calls
    lp: jax.Array
    highest: jax.Array
    lp_square: jax.Array
    lp_time: jax.Array
    mean: Position
    square: Position
    gradient: Position
    source: jax.Array


SEEN_AXES = Seen(SCALAR, CHAIN, CHAIN, CHAIN, CHAIN, POSITION, POSITION, POSITION, CHAIN)  # type: ignore[arg-type]  # axes stand in for arrays
"""Axes of every array."""


def init_seen(position: Position) -> Seen:
    """Return the statistics at the beginning of a window, for positions (chain, ...) like these."""
    num_chains = len(jax.tree.leaves(position)[0])
    none, empty = jnp.zeros(num_chains, jnp.float64), jax.tree.map(jnp.zeros_like, position)
    chains = jnp.arange(num_chains, dtype=jnp.int32)
    return Seen(jnp.zeros((), jnp.float64), none, none - jnp.inf, none, none, empty, empty, empty, chains)


def update_seen(seen: Seen, lp: Float[Array, " chain"], position: Position, gradient: Position) -> Seen:
    """Add one iteration; afterwards each chain continues from its own position."""
    count = seen.count + 1
    before, lp_mean = lp - seen.lp, seen.lp + (lp - seen.lp) / count

    def to_mean(mean: jax.Array, x: jax.Array) -> jax.Array:
        return mean + (x - mean) / count.astype(x.dtype)

    mean = map_parts(to_mean, seen.mean, position)
    return Seen(
        count,
        lp_mean,
        jnp.maximum(seen.highest, lp),
        seen.lp_square + before * (lp - lp_mean),
        # The mean of the earlier iteration numbers is half of the count.
        seen.lp_time + count / 2 * (lp - lp_mean),
        mean,
        map_parts(lambda s, x, old, new: s + (x - old) * (x - new), seen.square, position, seen.mean, mean),
        map_parts(to_mean, seen.gradient, map_parts(jnp.square, gradient)),
        jnp.arange(len(lp), dtype=jnp.int32),
    )


def bound_log_masses(seen: Seen, mask: Position) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return lower and upper bounds on the log mass of each chain's mode, up to a constant, and the number of coordinates, (chain,) float64."""
    below, above, count = seen.lp, seen.highest, jnp.zeros_like(seen.lp)
    for square, gradient, counts in zip(seen.square, seen.gradient, mask, strict=True):
        if square is None or gradient is None:
            continue
        log_variance = jnp.log(square.astype(jnp.float64) / seen.count)
        log_curvature = jnp.log(gradient.astype(jnp.float64))
        narrow, wide = jnp.maximum(log_curvature, -log_variance), jnp.maximum(log_variance, -log_curvature)
        # Computed from the mask alone, it would be made by every device for the rows of all.
        is_coordinate = (square >= 0) & (True if counts is None else counts[None] > 0)
        terms = [jnp.where(is_coordinate, x, 0.0) for x in (0.5 * narrow, 0.5 * wide, jnp.ones_like(wide))]
        of_part = sum_together(*terms, axes=range(1, square.ndim))
        below, above, count = below - of_part[0], above + of_part[1], count + of_part[2]
    return below, above, count


def is_steady(seen: Seen, missing: Float[Array, " chain"]) -> Bool[Array, " chain"]:
    """Return which chains have no trend through the window that is steep enough to explain how low they are.

    A chain that hardly moves is not in transit, whichever way its few steps went.

    Args:
        seen: statistics of the window.
        missing: (chain,) log mass below the limit, nats.
    """
    time_square = seen.count * (seen.count**2 - 1) / 12
    change = jnp.abs(seen.lp_time) / time_square * seen.count
    trends = jnp.square(seen.lp_time) >= _MOST_TREND * time_square * seen.lp_square
    return ~trends | (_MOST_WINDOWS * change < missing)


def choose_sources(seen: Seen, mask: Position) -> Int[Array, " chain"]:
    """Return the chain from whose position each chain continues: another one for chains in a mode of negligible mass.

    Restarted chains are spread over the chains in modes that are not negligible.
    """
    num_chains, chains = len(seen.lp), jnp.arange(len(seen.lp), dtype=jnp.int32)
    num_compared = max(_FEWEST_CHAINS, math.ceil(_SHARE * num_chains))
    if num_chains <= num_compared:
        return chains
    below, above, num_coordinates = bound_log_masses(seen, mask)
    # Squares that overflow give no bound: chains far away must not attract others.
    below = jnp.where(jnp.isfinite(below), below, -jnp.inf)
    best = jnp.sort(below)[num_chains - num_compared]
    least = best - _NATS - _NATS_PER_COORDINATE * num_coordinates
    is_lost, stays = (above < least) & is_steady(seen, least - above), below >= least
    places = jnp.argsort(~stays, stable=True)
    taken = places[(jnp.cumsum(is_lost) - 1) % jnp.maximum(stays.sum(), 1)]
    return jnp.where(is_lost, taken.astype(jnp.int32), chains)


def near_others(lp: Float[Array, " chain"]) -> Bool[Array, " chain"]:
    """Return which chains have a finite log density that is not far below the median of the finite ones.

    Chains far above it count: the mode of a hierarchical model has a higher density than its typical set, and a majority may be lost.

    >>> near_others(jnp.asarray([-3.0, -90.0, jnp.nan, -4.0, -3.5])).tolist()
    [True, False, False, True, True]
    """
    finite = jnp.where(jnp.isfinite(lp), lp, jnp.nan)
    median = jnp.nanmedian(finite)
    deviation = jnp.nanmedian(jnp.abs(finite - median))
    return finite >= median - _MARGIN - _DEVIATIONS * deviation


def update_running(running: Float[Array, " chain"], acceptance: Float[Array, " chain"]) -> Float[Array, " chain"]:
    """Return the running mean of each chain's acceptance after one iteration, (chain,) float64."""
    return running + _FORGETS * (jnp.where(jnp.isfinite(acceptance), acceptance, 0.0) - running)


def is_moving(running: Float[Array, " chain"]) -> Bool[Array, " chain"]:
    """Return which chains still accept proposals, compared with the median; no common step size would suit those that do not.

    >>> is_moving(jnp.asarray([0.8, 0.7, 0.01, 0.6])).tolist()
    [True, True, False, True]
    """
    return running >= _STUCK * jnp.median(running)
