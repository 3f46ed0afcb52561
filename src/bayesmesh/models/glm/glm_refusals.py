"""Refusals of outcomes and columns that a linear model would misread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bayesmesh.errors import ConfigError
from bayesmesh.models.base import VariableLike
from bayesmesh.models.glm.formula import KEY

MOST_COUNT = 2**31 - 1
"""Largest count: devices hold 32-bit integers."""


def check_order(name: str, about: VariableLike) -> None:
    """Refuse an ordinal outcome whose levels were not given in an order; the order of only two decides no more than a sign.

    Raises:
        ConfigError: its levels are in alphabetical order, and not numbers.
    """
    levels = about.levels
    if about.is_ordered or len(levels) < 3 or list(levels) != sorted(levels):
        return
    try:
        [*map(float, levels)]
    except ValueError:
        first = ", ".join(levels[:3])
        raise ConfigError(
            f"{KEY}: the levels of '{name}' are in alphabetical order ({first}), which need not be their own",
            f"write all levels from the lowest to the highest:\n    data:\n      levels:\n        {name}: [...]",
        ) from None


def check_counts(columns: Mapping[str, np.ndarray], start: int) -> None:
    """Refuse counts that do not fit into the integers of a device.

    Args:
        columns: name -> counts for a block of rows.
        start: number of the first row, from 0.

    Raises:
        ConfigError: a count is too large.
    """
    for name, values in columns.items():
        if values.max(initial=0) > MOST_COUNT:
            row = int(np.argmax(values))
            problem = f"{KEY}: training row {start + row + 1}: '{name}' is {values[row]:g}, and counts are at most {MOST_COUNT:,}"
            raise ConfigError(problem, "use the family normal for the logarithm of so large counts")


def without_spread(what: str, value: float, remedy: str) -> ConfigError:
    """Return the error for a column or an outcome that is the same in all rows."""
    return ConfigError(f"{KEY}: {what} has the same value, {value:g}, in all rows", remedy)


def check_trials(name: str | None, mean: float) -> None:
    """Refuse rows without any trials, given the mean number of trials, which is 1 without such a column."""
    if not mean:
        problem = f"key 'model.trials': '{name}' is 0 in every row, so the data hold no trials"
        raise ConfigError(problem, "name the column with the number of trials, or use other rows")


def whole_trials(name: str | None, trials: np.ndarray) -> np.ndarray:
    """Return the numbers of trials, (row,) int32; refuse negative and fractional ones, even in rows to be predicted."""
    is_whole = (trials >= 0) & (trials == np.floor(trials))
    if not is_whole.all():
        problem = f"key 'model.trials': '{name}' is {trials[~is_whole][0]:g} in a row"
        raise ConfigError(problem, "write whole numbers of at least 0, or leave the row out")
    return trials.astype(np.int32)
