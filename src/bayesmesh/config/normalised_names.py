"""Find the column that a name in an expression stands for: Python's parser normalises names, and tables do not."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection


def columns_called(name: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a name in a parsed expression may stand for, usually one.

    Python's parser returns names in the normal form NFKC (Unicode Standard Annex 31), in which the micro sign is the
    Greek letter mu.

    >>> [ascii(each) for each in columns_called("\u03bcg", ["\u00b5g", "mg"])]
    ["'\\\\xb5g'"]
    >>> columns_called("x2", ["x\u00b2", "x2"]), columns_called("y", ["x"])
    (['x2'], [])
    """
    return [
        column
        for column in columns
        if column == name or (column.isidentifier() and unicodedata.normalize("NFKC", column) == name)
    ]
