"""Compute intervals of chosen coordinates, with Monte Carlo errors, from draws that are read in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.draws import DrawReader
from bayesmesh.store.posterior.coordinates import coordinate_blocks

INTERVAL = (0.05, 0.95)
"""Probabilities of the quantiles at the ends of a 90% equal-tailed interval."""

_QUANTILES = (*INTERVAL, 0.5)

READ_BYTES = 64 * 2**20
"""Limit on a block of stored draws, with the data read at a time for it, in bytes."""

MOST_VALUES = 400_000_000
"""Largest number of draws times coordinates of a finding for which every coordinate gets an interval."""

MIN_DRAWS = 4
"""Fewest draws per chain for which the ends of an interval get an error."""


class Estimate(NamedTuple):
    """A coordinate with the interval of its draws.

    Attributes:
        item: the coordinate, with mean, standard deviation and diagnostics.
        low, high: ends of the interval; NaN if a draw is not finite or none are stored.
        low_error, high_error: their Monte Carlo standard errors; NaN if they were not computed, or with fewer than
            `MIN_DRAWS` draws per chain.
        reference: value with which the interval is compared, or None.
        truth: true value, from which the data were simulated; NaN if unknown.
        median: median of the draws; NaN as for the interval.
    """

    item: Coordinate
    low: float
    high: float
    low_error: float
    high_error: float
    reference: float | None
    truth: float
    median: float = math.nan

    @property
    def side(self) -> int:
        """1 if the interval lies above the reference, -1 if below, 0 if it contains it or there is none."""
        if self.reference is None:
            return 0
        return int(self.low > self.reference) - int(self.high < self.reference)

    @property
    def contains_truth(self) -> bool:
        """Whether the interval contains the true value."""
        return self.low <= self.truth <= self.high


def read_draws(
    reader: DrawReader, items: Sequence[Coordinate], block_bytes: int = READ_BYTES
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield draws of coordinates, block by block; coordinates that the posterior lacks are left out.

    Args:
        reader: reader of the posterior.
        items: coordinates of any arrays.
        block_bytes: limit on a block in its stored dtype, together with the data read at a time for it, in bytes.

    Yields:
        Positions in `items`, and their draws times `Coordinate.scale`, float64, shape (chain, draw, coordinate).

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    arrays: dict[tuple[bool, str], list[int]] = {}
    for n, item in enumerate(items):
        arrays.setdefault((item.is_summary, item.variable), []).append(n)
    for (is_summary, variable), places in arrays.items():
        array = reader.array("summaries" if is_summary else "posterior", variable)
        shape = array.shape[2:] if array is not None else ()
        places = [n for n in places if _is_inside(items[n].index, shape)]
        if array is None or not places:
            continue
        flat = np.array([np.ravel_multi_index(items[n].index, shape) if shape else 0 for n in places], np.int64)
        order = np.argsort(flat)
        for part, draws in coordinate_blocks(array, flat[order], block_bytes // 2):
            chosen = [places[n] for n in order[part]]
            yield chosen, draws.astype(np.float64) * [items[n].scale for n in chosen]


def _is_inside(index: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(index) == len(shape) and all(n < length for n, length in zip(index, shape, strict=True))


def measure_intervals(
    reader: DrawReader, items: Sequence[Coordinate], references: Sequence[float | None], *, with_errors: bool
) -> list[Estimate]:
    """Return the estimate of each coordinate, in order; the interval is NaN without stored draws.

    Args:
        reader: reader of the posterior.
        items: coordinates.
        references: reference value of each coordinate, or None.
        with_errors: whether to compute Monte Carlo errors of the ends of intervals.

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    from bayesmesh.diagnostics.efficiency import quantile_mcse

    ends = np.full((len(items), 5), np.nan)
    for places, draws in read_draws(reader, items):
        is_finite = np.isfinite(draws).all(axis=(0, 1))
        ends[places, :3] = np.where(is_finite, np.quantile(draws, _QUANTILES, axis=(0, 1)), np.nan).T
        if with_errors and draws.shape[1] >= MIN_DRAWS:
            ends[places, 3:] = quantile_mcse(draws, INTERVAL).T
    truths = [reader.truth(item) * item.scale for item in items]
    return [
        Estimate(item, low, high, low_error, high_error, reference, truth, median)
        for item, (low, high, median, low_error, high_error), reference, truth in zip(
            items, ends.tolist(), references, truths, strict=True
        )
    ]


def extremes(items: Sequence[Coordinate], most: int) -> list[int]:
    """Return the positions of up to `most` coordinates with the lowest and the highest means, by ascending mean.

    Coordinates whose mean is NaN come first.
    """
    order = sorted(range(len(items)), key=lambda n: (not math.isnan(items[n].mean), items[n].mean))
    return order if len(order) <= most else order[: most // 2] + order[-(most - most // 2) :]
