"""Means and standard deviations of columns, in one pass over blocks of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np


class Moments(NamedTuple):
    """Number of rows, means and sums of squared deviations of columns."""

    num_rows: int
    mean: np.ndarray
    squares: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations, with the number of rows as the divisor."""
        return np.sqrt(self.squares / max(self.num_rows, 1))


def moments_of(blocks: Iterable[np.ndarray]) -> Moments:
    """Return the moments of the columns of blocks (row, column), in one pass (Chan, Golub and LeVeque 1979).

    >>> found = moments_of([np.array([[1.0], [2.0]]), np.array([[6.0]])])
    >>> found.mean.tolist(), found.sd.round(4).tolist()
    ([3.0], [2.1602])
    """
    found: Moments | None = None
    for block in _not_empty(blocks):
        mean = block.mean(0)
        own = Moments(len(block), mean, np.square(block - mean).sum(0))
        found = own if found is None else join_moments(found, own)
    return Moments(0, np.zeros(0), np.zeros(0)) if found is None else found


def _not_empty(blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    return (block for block in blocks if len(block))


def join_moments(one: Moments, other: Moments) -> Moments:
    """Return the moments of the rows of two parts together."""
    count, delta = one.num_rows + other.num_rows, other.mean - one.mean
    squares = one.squares + other.squares + np.square(delta) * (one.num_rows * other.num_rows / count)
    return Moments(count, one.mean + delta * (other.num_rows / count), squares)
