"""Make fields from the columns of a spool: vectors and matrices, computed for the rows that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesmesh.data.base import Variable
from bayesmesh.data.tables.columns import NO_LEVEL
from bayesmesh.data.tables.spool import Spool

MISSING_LEVEL = "(missing)"
"""Level of the empty cells of a category whose missing values are kept."""

type _About = Mapping[str, Any]


def variable_of(about: _About) -> Variable:
    """Return the meaning of the numbers of a column, from its description by `TableReader.spool`."""
    if about["kind"] == "category":
        levels = tuple(about["levels"])
        return Variable("category", levels=(*levels, MISSING_LEVEL) if "missing" in about else levels)
    return Variable("number", mean=about.get("mean", 0.0), scale=about.get("scale", 1.0))


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
        values = self._spool.read(self._name, start, max(start, stop))
        is_missing = np.isnan(values) if values.dtype.kind == "f" else values == NO_LEVEL
        return is_missing.astype(np.float64)


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
