"""Read all rows once before outcomes are simulated: what the outcome is, and rows from all parts of the data.

Tables are often sorted, so the first rows tell neither whether an outcome is 0 or 1, nor its scale, nor the range of predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses._draw_blocks import RowsOfBlock
from bayesmesh.analyses.base import BoundModel
from bayesmesh.data.shards import Shards


class Unit(NamedTuple):
    """The unit of the table in which an outcome is shown, if the data hold it standardised.

    Attributes:
        mean: of the outcome in the table, which the data hold as 0.
        scale: its standard deviation, which the data hold as 1.
    """

    mean: float = 0.0
    scale: float = 1.0

    def convert(self, outcome: np.ndarray) -> np.ndarray:
        """Return outcomes in this unit; those that are not standardised keep their dtype.

        >>> Unit(10.0, 2.0).convert(np.array([-1.0, 0.5])), Unit().convert(np.array([3], np.int32)).dtype.name
        (array([ 8., 11.]), 'int32')
        """
        return outcome if self == Unit() else self.mean + self.scale * outcome.astype(np.float64)


def unit_of_outcome(bound: BoundModel) -> Unit:
    """Return the unit of the column that the model names as its outcome; that of the data if it names none."""
    name = bound.model.outcome_field()
    about = None if name is None else Shards(bound.shards.path).variables.get(name)
    return Unit() if about is None else Unit(about.mean, about.scale)


class Survey(NamedTuple):
    """The observed outcomes of all rows, and evenly spaced rows.

    Attributes:
        dtype: of the outcome.
        smallest, largest: observed outcomes.
        centre: mean of the outcomes.
        scale: their standard deviation; 1 if they are all equal.
        is_finite: whether all outcomes are finite.
        rows: evenly spaced rows, as many as a block holds; unless they are all rows, numbered from the number of all rows,
            so that they are simulated with random numbers of their own.
    """

    dtype: np.dtype
    smallest: float
    largest: float
    centre: float
    scale: float
    is_finite: bool
    rows: RowsOfBlock


def survey_rows(blocks: Iterable[RowsOfBlock], num_rows: int, block_rows: int) -> Survey:
    """Return what all rows tell, from one pass over blocks of them.

    Args:
        blocks: all rows.
        num_rows: number of all rows.
        block_rows: rows of a block.
    """
    stride = math.ceil(num_rows / block_rows)
    parts: list[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]] = []
    ends: list[tuple[float, float]] = []
    moments: list[tuple[int, float, float]] = []
    for block in blocks:
        chosen = np.flatnonzero((block.start + np.arange(block.num_rows)) % stride == 0)
        parts.append(({k: v[chosen] for k, v in block.rows.items()}, block.entries[chosen], block.outcome[chosen]))
        values = block.outcome.astype(np.float64)
        ends.append((float(values.min()), float(values.max())))
        moments.append((values.size, float(values.mean()), float(values.var())))
    size = min(block_rows, num_rows)
    outcome = np.concatenate([part[2] for part in parts])
    # One shape means one compilation.
    padded = np.minimum(np.arange(size), len(outcome) - 1)
    rows = {k: np.concatenate([part[0][k] for part in parts])[padded] for k in parts[0][0]}
    entries = np.concatenate([part[1] for part in parts])[padded]
    counts, means, variances = np.array(moments).T
    centre = float(np.average(means, weights=counts))
    variance = float(np.average(variances + np.square(means - centre), weights=counts))
    smallest, largest = min(low for low, _ in ends), max(high for _, high in ends)
    return Survey(
        outcome.dtype, smallest, largest, centre, math.sqrt(variance) or 1.0,
        bool(np.isfinite([*means, *variances]).all()),
        RowsOfBlock(0 if stride == 1 else num_rows, len(outcome), rows, entries, outcome),
    )  # fmt: skip
