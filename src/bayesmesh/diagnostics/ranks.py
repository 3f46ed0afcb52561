"""Rank-normalise draws: average ranks of ties, folding about the median, quantile indicators.

Arrays are batched over coordinates, ``(coordinate, half_chain, draw)``, float64 and finite; one sort of each
coordinate serves ranks, folded ranks, median and quantiles.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.special import ndtri

_BLOM = 3 / 8
"""Fractional offset of Blom (1958), as in Vehtari et al. (2021), equation 14."""

Halves = Float[np.ndarray, "coordinate half_chain half_draw"]
"""Draws of half chains, or scores of them."""

Flat = Float[np.ndarray, "coordinate position"]
"""The same, with all half chains of a coordinate concatenated."""


@dataclasses.dataclass(frozen=True)
class Ordered:
    """Half chains of a block of coordinates, and their order.

    Attributes:
        halves: draws, 2 * chain half chains of draw // 2; all first halves, then all second halves.
        order: positions in `halves`, flattened over all coordinates, by increasing value within each coordinate.
        values: `halves` in that order.
        all_values: every draw in increasing order, including the middle draw that `halves` omits if chains have odd
            length.
    """

    halves: Halves
    order: Int[np.ndarray, "coordinate position"]
    values: Flat
    all_values: Float[np.ndarray, "coordinate any_position"]


def order_draws(x: Float[np.ndarray, "coordinate chain draw"]) -> Ordered:
    """Split chains into halves and sort each coordinate once.

    Args:
        x: draws, float64, finite, at least one; from two on, halves are not empty.

    Returns:
        Halves and their order. If the number of draws is odd, quantiles include the middle draw and halves omit it.

    >>> order_draws(np.array([[[5.0, 1.0, 9.0, 2.0, 4.0]]])).values
    array([[1., 2., 4., 5.]])
    """
    num_coordinates, num_chains, num_draws = x.shape
    half = num_draws // 2
    kept = 2 * num_chains * half
    halves = np.concatenate([x[:, :, :half], x[:, :, num_draws - half :]], axis=1)
    flat = halves.reshape(num_coordinates, kept)
    if num_draws % 2:
        flat = np.concatenate([flat, x[:, :, half]], axis=1)
    order = np.argsort(flat, axis=1)
    if kept == flat.shape[1]:
        order += _first_places(num_coordinates, kept)
        all_values = np.take(flat, order)
        return Ordered(halves, order, all_values, all_values)
    all_values = np.take(flat, order + _first_places(*flat.shape))
    in_half = order < kept
    shape = (num_coordinates, kept)
    order = order[in_half].reshape(shape) + _first_places(*shape)
    return Ordered(halves, order, all_values[in_half].reshape(shape), all_values)


def average_ranks(values: Shaped[np.ndarray, " value"]) -> Float[np.ndarray, " value"]:
    """Return the rank of each value, from 1; tied values share their average rank.

    >>> average_ranks(np.array([5.0, 1.0, 9.0, 9.0]))
    array([2. , 1. , 3.5, 3.5])
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])


def rank_normalise(ordered: Ordered, out: Halves | None = None) -> Halves:
    """Return normal scores of the pooled average ranks (Vehtari et al. 2021, doi:10.1214/20-BA1221, equation 14).

    Args:
        ordered: half chains and their order.
        out: a contiguous array for the scores.

    Returns:
        z-scores, float64; tied draws, as after rejections, share one score.

    >>> rank_normalise(order_draws(np.array([[[5.0, 1.0, 9.0, 9.0]]]))).round(3)
    array([[[-0.299, -1.049],
            [ 0.629,  0.629]]])
    """
    return _scatter(_scores(ordered.values), ordered.order, ordered.halves.shape, out)


def rank_normalise_folded(ordered: Ordered, out: Halves | None = None) -> Halves:
    """Return normal scores of the distances from the median, which reveal chains that differ in scale.

    Args:
        ordered: half chains and their order.
        out: a contiguous array for the scores.

    Returns:
        z-scores of ``abs(x - median(x))``, float64; the median is that of the halves.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 4, on folded draws.

    >>> rank_normalise_folded(order_draws(np.array([[[1.0, 2.0, 3.0, 9.0]]]))).round(3)
    array([[[ 0.299, -0.629],
            [-0.629,  1.049]]])
    """
    middle = ordered.values.shape[1] // 2
    median = (ordered.values[:, middle - 1] + ordered.values[:, middle]) / 2
    distance = ordered.values - median[:, None]
    np.abs(distance, out=distance)
    # Distances of sorted draws decrease and then increase: two runs, which a merge sort merges in linear time.
    inner = np.argsort(distance, axis=1, kind="stable")
    inner += _first_places(*inner.shape)
    return _scatter(_scores(np.take(distance, inner)), np.take(ordered.order, inner), ordered.halves.shape, out)


def tail_indicator(ordered: Ordered, probability: float, out: Halves | None = None) -> Halves:
    """Return where a draw is at most the pooled quantile, as 0 and 1.

    Args:
        ordered: half chains and their order.
        probability: of the quantile, linear between order statistics (numpy's default), over all draws.
        out: an array for the indicator.

    Returns:
        Indicator, float64.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 4, on the efficiency of quantiles.

    >>> tail_indicator(order_draws(np.array([[[5.0, 1.0, 9.0, 2.0]]])), 0.05)
    array([[[0., 1.],
            [0., 0.]]])
    """
    found = np.empty(ordered.halves.shape) if out is None else out
    return np.less_equal(ordered.halves, quantile_of(ordered, probability)[:, None, None], out=found)


def interval_indicator(ordered: Ordered, low: float, high: float) -> Halves:
    """Return where a draw lies between two pooled quantiles, both included, as 0 and 1; see `tail_indicator`.

    >>> interval_indicator(order_draws(np.array([[[5.0, 1.0, 9.0, 2.0]]])), 0.3, 0.7)
    array([[[1., 0.],
            [0., 1.]]])
    """
    lowest, highest = (quantile_of(ordered, probability)[:, None, None] for probability in (low, high))
    return ((lowest <= ordered.halves) & (ordered.halves <= highest)).astype(np.float64)


def quantile_of(ordered: Ordered, probability: float) -> Float[np.ndarray, " coordinate"]:
    """Return a pooled quantile of all draws, linear between order statistics.

    >>> quantile_of(order_draws(np.array([[[5.0, 1.0, 9.0, 2.0]]])), 0.5)
    array([3.5])
    """
    position = (ordered.all_values.shape[1] - 1) * probability
    lower = int(np.floor(position))
    weight = position - lower
    below = ordered.all_values[:, lower]
    above = ordered.all_values[:, min(lower + 1, ordered.all_values.shape[1] - 1)]
    # numpy's two-sided form: exact at both ends, so that a draw equal to the quantile counts.
    gap = above - below
    return np.asarray(below + gap * weight if weight < 0.5 else above - gap * (1 - weight))


def _scores(values: Flat) -> Flat:
    """Return normal scores of sorted rows, ties by average rank."""
    size = values.shape[1]
    # Twice the average rank minus two is an integer: all scores are in a table of 2 * size - 1 entries.
    twice_rank = np.arange(2, 2 * size + 1)
    table = ndtri((twice_rank / 2 - _BLOM) / (size - 2 * _BLOM + 1))
    is_tie = np.zeros(values.shape, dtype=bool)
    np.equal(values[:, 1:], values[:, :-1], out=is_tie[:, 1:])
    ties = np.flatnonzero(is_tie)
    scores = np.broadcast_to(table[::2], values.shape)
    if ties.size:
        scores = scores.copy()
        # Ties follow each other in runs, each of which begins one position before its first tie.
        run = np.flatnonzero(np.diff(ties, prepend=-1) > 1)
        lengths = np.diff(run, append=ties.size) + 1
        first = ties[run] - 1
        shared = table[2 * (first % size) + lengths - 1]
        flat = scores.reshape(-1)
        flat[first], flat[ties] = shared, np.repeat(shared, lengths - 1)
    return scores


def _first_places(num_rows: int, length: int) -> Int[np.ndarray, "num_rows 1"]:
    """Return the flat position of the first entry of each row: one flat take is twice as fast as numpy's take_along_axis."""
    return np.arange(num_rows)[:, None] * length


def _scatter(
    scores: Flat, order: Int[np.ndarray, "coordinate position"], shape: tuple[int, ...], out: Halves | None
) -> Halves:
    """Return scores in the order of the draws."""
    found = np.empty(shape) if out is None else out
    found.reshape(-1)[order] = scores
    return found
