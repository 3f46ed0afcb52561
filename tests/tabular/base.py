"""What a table of the tests is: columns made from random numbers, and the model that is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

Columns = Mapping[str, np.ndarray]


class Table(NamedTuple):
    """A table and a question about it.

    Attributes:
        make: its columns, from a generator of random numbers.
        model: name in the registry.
        options: of the model.
        source: options of the source `table`, without the files.
        form: ending of the files.
        parts: number of files; with `key`, the column whose values are names of folders.
        key: see above.
    """

    make: Callable[[Generator], Columns]
    model: str
    options: Mapping[str, Any]
    source: Mapping[str, Any] = {}
    form: str = "csv"
    parts: int = 1
    key: str | None = None
