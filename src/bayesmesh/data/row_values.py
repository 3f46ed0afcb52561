"""Refuse values that no model and no page can use."""

from __future__ import annotations

import numpy as np

from bayesmesh.data.base import Variable
from bayesmesh.errors import DataError


def check_values(where: str, start: int, block: np.ndarray, about: Variable | None) -> None:
    """Check a block of rows of one field.

    Args:
        where: the field, for messages.
        start: number of the block's first row.
        block: (row, ...), its values.
        about: the column with the field's name, if any; a matrix with that name also holds other columns.

    Raises:
        DataError: a value is not finite, or is not the code of a level of a category, so that tables and pages could not
            name it.

    >>> check_values("rows/x", 8, np.array([0.5, np.inf]), None)
    Traceback (most recent call last):
    bayesmesh.errors.DataError: rows/x: row 10, counted from 1: a value is not finite
    """
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        row = start + int(np.argwhere(~np.isfinite(block))[0][0])
        raise DataError(f"{where}: row {row + 1}, counted from 1: a value is not finite")
    if about is None or about.kind != "category" or block.ndim != 1:
        return
    is_code = (block >= 0) & (block < len(about.levels)) & np.equal(block, np.trunc(block))
    if not is_code.all():
        place = int(np.flatnonzero(~is_code)[0])
        raise DataError(
            f"{where}: row {start + place + 1}, counted from 1: {block[place]} is not the code of a level; the column has codes"
            f" 0 to {len(about.levels) - 1}"
        )
