"""Read numbers from stored tables, JSON files and arrays, after comparing them with the records of their jobs."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import zarr

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file, read_json
from bayesmesh.store.posterior.reader import Posterior
from bayesmesh.store.records.jobs import Record, check_made_from, check_output, find_record
from bayesmesh_reproduction.claims.inputs import BENCHMARKS, FOLDERS

Value = float | str

Statistic = Callable[[np.ndarray], float]
"""A statistic of a column, or of all draws of a quantity."""

REMEDY = "run the stage that writes it again"


class NotRun(Exception):
    """The result that contains a number does not exist."""


class Reading(NamedTuple):
    """A number and its origin.

    Attributes:
        value: value as stored, a number or text.
        file: file, below the results.
        machine: machine of the measurement; empty for stored draws.
        written_at: time of writing; empty for stored draws.
    """

    value: Value
    file: str
    machine: str = ""
    written_at: str = ""

    @property
    def number(self) -> float:
        """The value as a number.

        Raises:
            StoreError: it is text.
        """
        try:
            return float(self.value)
        except ValueError as error:
            raise StoreError(f"{self.file}: {self.value!r:.80} is not a number", REMEDY) from error

    def __truediv__(self, other: Reading) -> Reading:
        if other.number == 0:
            raise StoreError(f"{other.file}: a number to divide by is 0", REMEDY)
        return self._replace(value=self.number / other.number, machine=self.machine or other.machine)

    def __sub__(self, other: Reading) -> Reading:
        return self._replace(value=self.number - other.number, machine=self.machine or other.machine)


class Rows(NamedTuple):
    """The rows of a table that a claim asks for; cells are text.

    Attributes:
        file: file, below the results.
        path: path of the table.
        cells: cells of each row.
        asked: description of the requested rows.
        record: record of the job that wrote the table.
    """

    file: str
    path: Path
    cells: pd.DataFrame
    asked: str
    record: Record

    def records(self) -> list[dict[str, str]]:
        """Return the rows, column -> text."""
        return [{str(column): text for column, text in row.items()} for row in self.cells.to_dict("records")]

    def last(self) -> Rows:
        """Return the last row."""
        return self._replace(cells=self.cells[-1:])

    def only(self, column: str) -> Reading:
        """Return the cell of the only row, a number or text.

        Raises:
            NotRun: the row does not exist, or its cell is empty.
            StoreError: there are several rows, or no such column.
        """
        self._check(column)
        if len(self.cells) > 1:
            raise StoreError(f"{self.path}: {len(self.cells)} rows, expected one", "run the benchmark again")
        text = self._all(column).cells[column].iloc[0]
        try:
            return self._reading(float(text))
        except ValueError:
            return self._reading(text)

    def over(self, column: str, statistic: Statistic) -> Reading:
        """Return a statistic of a column, such as ``np.sum``; no cell may be empty."""
        return self._reading(float(statistic(self._all(column).numbers(column))))

    def spread(self, column: str) -> Reading:
        """Return the ratio of the largest to the smallest value, over rows with a value."""
        rows = self._filled(column)
        values = rows._positive(column)
        return rows._reading(float(values.max() / values.min()))

    def slope(self, column: str, along: str) -> Reading:
        """Return the slope of one column against another, both in logarithms, over rows with a value."""
        rows = self._filled(column)
        values = rows._positive(column)
        return rows._reading(round(float(np.polyfit(np.log(rows._positive(along)), np.log(values), 1)[0]), 12))

    def numbers(self, column: str) -> np.ndarray:
        """Return a column as numbers, (rows,) float64.

        Raises:
            NotRun: the row does not exist.
            StoreError: the column does not exist, or a cell is not a number.
        """
        self._check(column)
        try:
            return np.array([float(text) for text in self.cells[column]])
        except ValueError as error:
            raise StoreError(f"{self.path}: column '{column}': {error}", REMEDY) from error

    def _check(self, column: str) -> None:
        if self.cells.empty:
            raise NotRun(f"{self.path.name} has no row" + (f" with {self.asked}" if self.asked else ""))
        if column not in self.cells:
            raise StoreError(f"{self.path}: no column '{column}'", REMEDY)

    def _filled(self, column: str) -> Rows:
        """Return the rows with a value; a contender that reached its time limit has none."""
        self._check(column)
        return self._replace(cells=self.cells[self.cells[column] != ""])

    def _all(self, column: str) -> Rows:
        """Return the rows, all of which must have a value."""
        if len(self._filled(column).cells) < len(self.cells):
            raise NotRun(self.cells.iloc[0].get("status") or f"{self.path.name}: '{column}' is empty")
        return self

    def _positive(self, column: str) -> np.ndarray:
        if len(self.cells) < 2:
            raise NotRun("fewer than two points")
        values = self.numbers(column)
        if not ((values > 0) & np.isfinite(values)).all():
            raise StoreError(f"{self.path}: a value that is not positive has no logarithm", REMEDY)
        return values

    def _reading(self, value: Value) -> Reading:
        named = (self.cells.iloc[0].get(name) for name in ("device", "device_kind", "platform"))
        device, machine = next(filter(None, named), ""), self.record.machine
        where = f"{device}; {machine}" if device and device not in machine else machine
        return Reading(value, self.file, where, self.record.written_at)


class Results:
    """Stored results, as claims read them.

    Args:
        folder: folder of results.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, file: str) -> Path:
        """Return a file that a claim reads.

        Raises:
            NotRun: the file does not exist.
        """
        folder, _, name = file.partition("/")
        is_followed = name.startswith(BENCHMARKS) if folder == "benchmarks" else folder in FOLDERS
        assert is_followed, f"{file}: name its folder or benchmark in inputs.py, so that claims follow it"
        path = self.folder / file
        if not path.exists():
            raise NotRun(f"{file} is not there")
        return path

    def rows(self, file: str, **where: float | str | list[str]) -> Rows:
        """Return the rows of a table with given values; numbers are compared as numbers.

        Args:
            file: file, below the results.
            where: column -> value, or a list of allowed texts.

        Raises:
            NotRun: the table does not exist, or comes from a quick run.
            StoreError: the table is damaged, edited, or lacks a column.
        """
        path, record = self._recorded(file)
        try:
            cells = pd.read_csv(path, dtype=str, keep_default_na=False, index_col=False).fillna("")
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read as a table: {error}", REMEDY) from error
        for column, wanted in where.items():
            if column not in cells:
                raise StoreError(f"{path}: no column '{column}'", REMEDY)
            is_number = isinstance(wanted, (int, float))
            values = pd.to_numeric(cells[column], errors="coerce") if is_number else cells[column]
            cells = cells[values.isin(wanted if isinstance(wanted, list) else [wanted])]
        return Rows(file, path, cells, ", ".join(f"{k} {v}" for k, v in where.items()), record)

    def document(self, file: str) -> Any:
        """Return a JSON file.

        Raises:
            NotRun: the file does not exist, or comes from a quick run.
            StoreError: the file is damaged or edited.
        """
        return read_json(self._recorded(file)[0])

    def value(self, file: str, *keys: str | int) -> Reading:
        """Return a value of a JSON file.

        Raises:
            NotRun: the file does not exist, or its value is null.
            StoreError: the file is damaged or edited, or has no such key.
        """
        path, record = self._recorded(file)
        named = " / ".join(map(str, keys))
        try:
            value = functools.reduce(operator.getitem, keys, read_json(path))
        except (KeyError, IndexError, TypeError) as error:
            raise StoreError(f"{path}: there is no {named}", REMEDY) from error
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise NotRun(f"{path.name}: {named} has no value")
        return Reading(value, file, record.machine, record.written_at)

    def _recorded(self, file: str) -> tuple[Path, Record]:
        """Return a file and the record of its job, after comparing what the job read and wrote with the record."""
        path = self.path(file)
        check_output(self.folder, path, is_thorough=True)
        check_made_from(self.folder, path)
        record = find_record(self.folder, path)
        if record.is_quick:
            raise NotRun(f"{file} is of a quick run, too small for claims")
        return path, record

    def store(self, file: str, arrays: Sequence[str]) -> Posterior:
        """Return a store of draws, after hashing the arrays that are read.

        Raises:
            NotRun: the store does not exist.
            StoreError: an array has changed, or no job has recorded the store.
        """
        path = self.path(file)
        record = find_record(self.folder, path)
        for array in arrays:
            stamps = record.below(f"{file}/{array}")
            if not stamps:
                raise StoreError(f"{path}: no array '{array}'", REMEDY)
            for name, stamp in stamps.items():
                chunk = self.folder / name
                if not chunk.is_file() or hash_file(chunk) != stamp.sha256:
                    raise StoreError(f"{chunk}: has been altered: its sha256 is another one", REMEDY)
        return Posterior(path)

    def shape(self, file: str, array: str) -> Reading:
        """Return the shape of an array such as ``posterior/state``, as text."""
        return Reading(", ".join(map(str, self._array(file, array).shape)), file)

    def over(self, file: str, array: str, statistic: Statistic, *place: int) -> Reading:
        """Return a statistic over chains and draws of an array, at an index of its other axes; NaN unless all are finite."""
        values = np.asarray(self._array(file, array)[...], np.float64)
        at: Any = (slice(None), slice(None), *place) if place else ...
        try:
            flat = values[at].ravel()
        except IndexError as error:
            raise StoreError(f"{self.folder / file}: {array} has no entry {place}", REMEDY) from error
        return Reading(float(statistic(flat)) if np.isfinite(flat).all() else math.nan, file)

    def _array(self, file: str, array: str) -> zarr.Array:
        return self.store(file, [array]).array(*array.rsplit("/", 1))
