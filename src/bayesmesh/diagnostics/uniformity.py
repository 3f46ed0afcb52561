"""Test whether values are uniform on the unit interval, with simultaneous bands for the distribution function."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import bdtr, bdtrc, bdtrik

NUM_SIMULATIONS = 4000
"""Number of simulated samples that determine the bands and the p value."""

MOST_POINTS = 100
"""Largest number of points at which distribution functions are compared."""


class Uniformity(NamedTuple):
    """The empirical distribution function of values, beside that of as many uniform values.

    Attributes:
        points: (point,) in (0, 1).
        shares: (point,), share of values up to each point.
        low, high: (point,), band that holds at all points together with probability 1 - `level`.
        p_value: share of uniform samples at least as extreme as the values.
        level: of the band.
    """

    points: Float[np.ndarray, " point"]
    shares: Float[np.ndarray, " point"]
    low: Float[np.ndarray, " point"]
    high: Float[np.ndarray, " point"]
    p_value: float
    level: float


def assess_uniformity(values: Float[np.ndarray, " value"], level: float = 0.01, seed: int = 0) -> Uniformity:
    """Compare values with the uniform distribution.

    At each point the number of smaller values is binomial. The statistic is the smallest two-sided tail probability over
    all points, and its distribution is simulated.

    Args:
        values: in [0, 1], finite.
        level: of the band.
        seed: of the simulation.

    Reference:
        Säilynoja, Bürkner, Vehtari 2022, "Graphical test for discrete uniformity", doi:10.1007/s11222-022-10090-6.

    >>> found = assess_uniformity(np.linspace(0.005, 0.995, 100))
    >>> found.p_value > 0.5, bool(((found.low <= found.shares) & (found.shares <= found.high)).all())
    (True, True)
    >>> assess_uniformity(np.linspace(0, 1, 100) ** 2).p_value < 0.001
    True
    """
    num_values = len(values)
    num_parts = max(2, min(num_values, MOST_POINTS))
    points = np.arange(1, num_parts) / num_parts
    counts = np.searchsorted(np.sort(values), points, side="right")
    generator = np.random.default_rng(seed)
    simulated = generator.multinomial(num_values, np.full(num_parts, 1 / num_parts), NUM_SIMULATIONS).cumsum(axis=1)
    statistics = _smallest_tail(simulated[:, :-1], num_values, points)
    found = float(_smallest_tail(counts[None], num_values, points)[0])
    each = float(np.quantile(statistics, level))
    low, high = (_quantile(tail, num_values, points) / num_values for tail in (each / 2, 1 - each / 2))
    p_value = (1 + int((statistics <= found).sum())) / (1 + NUM_SIMULATIONS)
    return Uniformity(points, counts / num_values, low, high, p_value, level)


def _smallest_tail(
    counts: np.ndarray, num_values: int, points: Float[np.ndarray, " point"]
) -> Float[np.ndarray, " sample"]:
    below, above = bdtr(counts, num_values, points), bdtrc(counts - 1, num_values, points)
    return np.asarray(2 * np.minimum(below, above).min(axis=1))


def _quantile(probability: float, num_values: int, points: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """Return the smallest count whose binomial distribution function is at least a probability."""
    count = np.ceil(bdtrik(probability, num_values, points))
    smaller = np.maximum(count - 1, 0)
    return np.where(bdtr(smaller, num_values, points) >= probability, smaller, count)
