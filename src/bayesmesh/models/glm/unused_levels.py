"""Columns of levels that no training row has, as in a fold without them: their coefficients follow their priors alone."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.models.base import ReadBlocks
from bayesmesh.models.glm.design import Columns
from bayesmesh.models.glm.formula import KEY

_log = logging.getLogger("bayesmesh")

_MOST_NAMED = 12
"""Largest number of columns that a sentence names."""


class Unused(NamedTuple):
    """A column that is constant because of the levels in it.

    Attributes:
        label: name of the column, such as ``town[c]``.
        is_everywhere: whether all rows have its levels, so that no row has the others; otherwise none has its levels.
        size: scale of the column, which has no standard deviation: 1 for levels alone, or the root mean square of the
            numbers that they multiply.
    """

    label: str
    is_everywhere: bool
    size: float


def find_unused(columns: Sequence[Columns], constant: Collection[int], read_blocks: ReadBlocks) -> dict[int, Unused]:
    """Return those of the constant columns whose levels no row has, or all rows have, by number.

    Args:
        columns: columns by term.
        constant: numbers of constant columns.
        read_blocks: returns an iterator over all training rows; called only if there are constant columns.
    """
    if not constant:
        return {}
    labels = [label for each in columns for label in each.labels]
    is_of_levels = [each.is_of_levels for each in columns for _ in each.labels]
    low, largest, squares, num_rows = np.ones(len(labels)), np.zeros(len(labels)), np.zeros(len(labels)), 0
    for rows in read_blocks():
        number = len(next(iter(rows.values())))
        levels = np.concatenate([each.evaluate(rows, number, without="numbers") for each in columns], axis=1)
        numbers = np.concatenate([each.evaluate(rows, number, without="levels") for each in columns], axis=1)
        low = np.minimum(low, levels.min(0, initial=1.0))
        # A level whose rows all have the number 0 determines its coefficient no more than one without rows.
        largest = np.maximum(largest, np.abs(levels * numbers).max(0, initial=0.0))
        squares, num_rows = squares + np.square(numbers).sum(0), num_rows + number
    sizes = np.sqrt(squares / max(num_rows, 1))
    found: dict[int, Unused] = {}
    for i in sorted(constant):
        is_everywhere = bool(low[i] == 1) and is_of_levels[i]
        if is_everywhere or (largest[i] == 0 and sizes[i] > 0):
            found[i] = Unused(labels[i], is_everywhere, float(sizes[i]))
    return found


def warn_of_unused(found: Collection[Unused]) -> None:
    """Warn of levels without training rows."""
    for is_everywhere, what in ((False, "no training row has the levels"), (True, "all training rows have the level")):
        if names := named([each.label for each in found if each.is_everywhere == is_everywhere]):
            _log.warning("warning: %s: %s %s, whose coefficients follow their priors alone", KEY, what, names)


def named(labels: Sequence[str]) -> str:
    """Return some names in a sentence, and whether there are more."""
    return ", ".join(labels[:_MOST_NAMED]) + (" and others" if len(labels) > _MOST_NAMED else "")
