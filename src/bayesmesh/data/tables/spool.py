"""Keep the chosen rows and columns of a table as arrays, from which any range of rows of any column can be read by itself.

Numbers are float64, NaN where missing; categories are int32 codes in the order of their first appearance, -1 where
missing. Derived values, such as standardised numbers, are computed when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.errors import DataError
from bayesmesh.store.arrays import create_array, open_group, read_part

FOLDER = "table.zarr"

_PARTS = {"numbers": "float64", "codes": "int32"}
_BLOCK_VALUES = 2**19
_MOST_ROWS, _LEAST_ROWS = 2**16, 2**8


class SpoolWriter:
    """Appends blocks of rows.

    Args:
        folder: folder of the table, in which the arrays are created.
        numbers: columns that hold numbers.
        codes: columns that hold codes of levels.

    Attributes:
        num_rows: rows appended so far.
    """

    def __init__(self, folder: Path, numbers: Sequence[str], codes: Sequence[str]) -> None:
        self._names = {"numbers": list(numbers), "codes": list(codes)}
        self.num_rows, self._written = 0, 0
        width = max(1, len(numbers) + len(codes))
        # A power of two, so that sizes do not depend on how files divide the table into blocks.
        self._chunk = min(_MOST_ROWS, max(_LEAST_ROWS, 1 << ((_BLOCK_VALUES // width).bit_length() - 1)))
        group = open_group(folder / FOLDER, "w")
        self._arrays: dict[str, zarr.Array] = {}
        for part, names in self._names.items():
            if names:
                # One file holds the same rows of all columns, each column in a separate chunk.
                shape, shard = (0, len(names)), (self._chunk, len(names))
                self._arrays[part] = create_array(
                    group, part, shape, _PARTS[part], ("row", "column"), chunks=(self._chunk, 1), shards=shard
                )
        self._waiting: list[dict[str, np.ndarray]] = []

    def append(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows: column -> (rows,)."""
        count = len(next(iter(columns.values())))
        if count:
            self._waiting.append(
                {part: np.stack([columns[n] for n in names], 1) for part, names in self._names.items() if names}
            )
            self.num_rows += count
        if self.num_rows - self._written >= self._chunk:
            self._flush((self.num_rows - self._written) // self._chunk * self._chunk)

    def close(self) -> None:
        """Write the rows that do not fill a chunk."""
        self._flush(self.num_rows - self._written)

    def _flush(self, count: int) -> None:
        if not count:
            return
        stop, left = self._written + count, {}
        for part, array in self._arrays.items():
            values = np.concatenate([block[part] for block in self._waiting])
            array.resize((stop, values.shape[1]))
            array[self._written : stop] = values[:count]
            left[part] = values[count:]
        self._waiting, self._written = [left] if len(next(iter(left.values()))) else [], stop


class Spool:
    """Reads ranges of rows of single columns.

    Args:
        folder: the folder that a `SpoolWriter` was given.
        numbers, codes: the columns in the order in which they were written.

    Attributes:
        num_rows: rows of the table.

    Raises:
        StoreError: the arrays are missing or damaged.
    """

    def __init__(self, folder: Path, numbers: Sequence[str], codes: Sequence[str]) -> None:
        group = open_group(folder / FOLDER)
        self._places = {name: ("numbers", at) for at, name in enumerate(numbers)}
        self._places |= {name: ("codes", at) for at, name in enumerate(codes)}
        self._arrays: dict[str, zarr.Array] = {}
        for part in {part for part, _ in self._places.values()}:
            array = group.get(part)
            if not isinstance(array, zarr.Array):
                raise DataError(f"{folder / FOLDER / part}: is missing", "run the fetch stage again")
            self._arrays[part] = array
        self.num_rows = next(iter(self._arrays.values())).shape[0]

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return rows ``start`` to ``stop - 1`` of a column.

        Raises:
            StoreError: a chunk is damaged or missing.
        """
        part, at = self._places[name]
        return read_part(self._arrays[part], slice(start, stop), slice(at, at + 1))[:, 0]

    def blocks(self) -> list[tuple[int, int]]:
        """Return the first row and the end of each range of rows that one file holds."""
        size = next(iter(self._arrays.values())).shards
        step = size[0] if size else self.num_rows
        return [(start, min(start + step, self.num_rows)) for start in range(0, self.num_rows, step)]
