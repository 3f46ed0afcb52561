"""Fields whose values divide rows: groups, times and strata."""

from __future__ import annotations

from typing import Literal

import numpy as np

from bayesmesh.data.base import Dataset
from bayesmesh.errors import DataError, suggest

Use = Literal["groups", "order", "strata"]
"""Use of a field's values."""


def read_column(dataset: Dataset, key: str, name: str, use: Use) -> np.ndarray:
    """Return a field with one number for each row, (rows,).

    Args:
        dataset: the data.
        key: key that names the field; messages begin with it.
        name: name of the field.
        use: use of its values.

    Raises:
        DataError: the field does not exist, has missing values, or is unordered where an order is needed.
    """
    rows = dataset.rows
    if name not in rows or len(rows[name].shape) != 1:
        vectors = [each for each, values in rows.items() if len(values.shape) == 1]
        raise DataError(f"{key}: '{name}' is not a field with one number per row", suggest(name, vectors))
    if use != "strata" and name in dataset.absent and (absent := np.asarray(dataset.absent[name][:]) != 0).any():
        where = f"{int(absent.sum())} rows hold no '{name}', the first of them row {int(absent.argmax()) + 1}, counted from 1"
        what = "would count as one group" if use == "groups" else "would take a place among the others"
        raise DataError(
            f"{key}: {where}: they {what}",
            f"leave '{name}' out of `indicate_missing`, and such rows with `missing: drop`",
        )
    about = dataset.variables.get(name)
    if use == "order" and about is not None and about.kind == "category" and name not in dataset.ordered:
        first = ", ".join(about.levels[:3])
        raise DataError(
            f"{key}: '{name}' is a category, whose levels are in alphabetical order ({first}), which need not be that of time",
            f"use a column of numbers or times; or write all levels from the first to the last:\n    data:\n      levels:\n        {name}: [...]\n  (a source of your own names it in `Dataset.ordered`)",
        )
    return np.asarray(rows[name][:])
