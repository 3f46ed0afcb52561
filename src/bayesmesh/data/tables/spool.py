"""Keep the chosen rows and columns of a table as arrays, from which any range of rows of any column can be read by itself.

Numbers are float64, NaN where missing; categories are int32 codes in the order of their first appearance, -1 where
missing. Fields, with standardised numbers and codes in the order of the levels, are computed for the rows that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from bayesmesh.data.base import Variable
from bayesmesh.data.tables.columns import is_missing
from bayesmesh.errors import DataError
from bayesmesh.store.arrays import RowWriter, create_array, open_group, read_part

FOLDER = "table.zarr"

_PARTS = {"numbers": "float64", "codes": "int32"}
_BLOCK_VALUES = 2**19
_MOST_ROWS, _LEAST_ROWS = 2**16, 2**8

MISSING_LEVEL = "(missing)"
"""Level of the empty cells of a category whose missing values are kept."""

type _About = Mapping[str, Any]


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
        self._names = {part: list(names) for part, names in (("numbers", numbers), ("codes", codes)) if names}
        self.num_rows = 0
        width = max(1, len(numbers) + len(codes))
        # A power of two, so that sizes do not depend on how files divide the table into blocks.
        chunk = min(_MOST_ROWS, max(_LEAST_ROWS, 1 << ((_BLOCK_VALUES // width).bit_length() - 1)))
        group = open_group(folder / FOLDER, "w")
        self._writers: dict[str, RowWriter] = {}
        for part, names in self._names.items():
            # One file holds the same rows of all columns, each column in a separate chunk.
            shape, shard = (0, len(names)), (chunk, len(names))
            array = create_array(group, part, shape, _PARTS[part], ("row", "column"), chunks=(chunk, 1), shards=shard)
            self._writers[part] = RowWriter(array, chunk)

    def append(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows: column -> (rows,)."""
        for part, writer in self._writers.items():
            writer.append(np.stack([columns[name] for name in self._names[part]], 1))
        self.num_rows += len(next(iter(columns.values())))

    def close(self) -> None:
        """Write the rows that do not fill a chunk."""
        for writer in self._writers.values():
            writer.close()


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

    def first_row(self, name: str, is_wanted: Callable[[np.ndarray], np.ndarray]) -> int:
        """Return the number of the first row whose value is wanted; there is one."""
        found = ((start, is_wanted(self.read(name, start, stop))) for start, stop in self.blocks())
        return next(start + int(np.argmax(wanted)) for start, wanted in found if wanted.any())

    def blocks(self) -> list[tuple[int, int]]:
        """Return the first row and the end of each range of rows that one file holds."""
        size = next(iter(self._arrays.values())).shards
        step = size[0] if size else self.num_rows
        return [(start, min(start + step, self.num_rows)) for start in range(0, self.num_rows, step)]


def variable_of(about: _About) -> Variable:
    """Return the meaning of the numbers of a column, from its description by `TableReader.spool`."""
    if about["kind"] == "category":
        levels = tuple(about["levels"])
        return Variable("category", levels=(*levels, MISSING_LEVEL) if "missing" in about else levels)
    return Variable("number", mean=about.get("mean", 0.0), scale=about.get("scale", 1.0))


# -- fields --------------------------------------------------------------------------------------------------------------


class ColumnField:
    """One column as an array of rows: standardised numbers, integers, or codes in the order of the levels.

    Args:
        spool: the table.
        name: the column.
        about: its description.
    """

    def __init__(self, spool: Spool, name: str, about: _About) -> None:
        self._spool, self._name, self._about = spool, name, about
        self._codes = np.asarray([*about.get("codes", ()), len(about.get("levels", ()))], np.int32)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._spool.num_rows,)

    @property
    def dtype(self) -> np.dtype[Any]:
        if self._about["kind"] == "category":
            return np.dtype(np.int32)
        is_whole = self._about["kind"] == "integer" and "fill" not in self._about
        return np.dtype(np.int64 if is_whole else np.float64)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self._spool.num_rows)
        values = self._spool.read(self._name, start, max(start, stop))
        if self._about["kind"] == "category":
            # A missing cell, -1, takes the code after the last level.
            return self._codes[values]
        if "fill" in self._about:
            values = np.where(np.isnan(values), self._about["fill"], values)
        if "mean" in self._about:
            values = (values - self._about["mean"]) / self._about["scale"]
        return values.astype(self.dtype)


class MissingField:
    """1 where a column holds no value, else 0, as an array of rows."""

    dtype = np.dtype(np.float64)

    def __init__(self, spool: Spool, name: str) -> None:
        self._spool, self._name, self.shape = spool, name, (spool.num_rows,)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self._spool.num_rows)
        return is_missing(self._spool.read(self._name, start, max(start, stop))).astype(np.float64)


class MatrixField:
    """Columns side by side as an array of rows, (rows, columns) float64.

    A category takes one column for each level but the first, 1 where a row has it. A column whose missing values are
    indicated is followed by the indicator.

    Args:
        spool: the table.
        columns: column -> its description.

    Attributes:
        labels: names of the columns of the matrix; ``town[Bonn]`` for a level.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, spool: Spool, columns: Mapping[str, _About]) -> None:
        self._parts: list[tuple[ColumnField | MissingField, int]] = []
        labels: list[str] = []
        for name, about in columns.items():
            levels = variable_of(about).levels
            self._parts.append((ColumnField(spool, name, about), len(levels)))
            labels += [f"{name}[{level}]" for level in levels[1:]] if about["kind"] == "category" else [name]
            if "missing" in about and about["kind"] != "category":
                self._parts.append((MissingField(spool, name), 0))
                labels.append(missing_name(name))
        self.labels, self.shape = tuple(labels), (spool.num_rows, len(labels))

    def __getitem__(self, rows: slice) -> np.ndarray:
        found: list[np.ndarray] = []
        for field, num_levels in self._parts:
            values = field[rows]
            if num_levels:
                found += [(values == code).astype(np.float64) for code in range(1, num_levels)]
            else:
                found.append(values.astype(np.float64))
        return np.stack(found, axis=1) if found else np.zeros((len(range(*rows.indices(self.shape[0]))), 0))


def missing_name(name: str) -> str:
    """Return the name of the field that indicates where a column is missing."""
    return f"{name}_missing"


def fields_of(spool: Spool, columns: Mapping[str, _About], wanted: Mapping[str, str | Sequence[str]]) -> dict[str, Any]:
    """Return the fields of a table.

    Args:
        spool: the table.
        columns: column -> its description.
        wanted: field -> a column, or the columns of a matrix.
    """
    fields: dict[str, Any] = {}
    for field, names in wanted.items():
        if isinstance(names, str):
            fields[field] = ColumnField(spool, names, columns[names])
            if "missing" in columns[names] and columns[names]["kind"] != "category":
                fields[missing_name(field)] = MissingField(spool, names)
        else:
            fields[field] = MatrixField(spool, {name: columns[name] for name in names})
    return fields
