"""Reads the numbers that claims name out of tables, JSON files and arrays, and follows each to its receipt."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file, read_json
from bayesmesh.reproduction.claims.claims_file import MeasureSettings
from bayesmesh.store.hashes import hashes_of
from bayesmesh.store.posterior_reader import Posterior
from bayesmesh.store.receipts import check_receipt

__all__ = ["NotRun", "Reading", "Value", "combine", "matching_rows", "read_file", "store_of"]

Value = float | str

_REMEDY = "run the stage that writes it again"


class NotRun(Exception):
    """What a number would come from is not there."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """A number, and where it came from.

    Attributes:
        value: as stored; text where it is none.
        files: below the results, the first is the one to look into.
        machine: what it was measured on.
        written_at: when.
    """

    value: Value
    files: tuple[str, ...]
    machine: str = ""
    written_at: str = ""

    @property
    def number(self) -> float:
        """The value as a number.

        Raises:
            StoreError: it is none.
        """
        try:
            return float(self.value)
        except ValueError as error:
            raise StoreError(f"{self.files[0]}: {self.value!r:.80} is not a number", _REMEDY) from error


def read_file(results: Path, measure: MeasureSettings) -> Reading:
    """Return the number that a measure names in a file, after holding the file to what its job wrote.

    Raises:
        NotRun: there is no such file, or no row for it.
        StoreError: the file is damaged, or not the one that was written.
    """
    assert measure.file is not None
    path = results / measure.file
    if not path.exists():
        raise NotRun(f"{measure.file} is not there")
    if path.suffix == ".zarr":
        return _from_array(results, path, measure)
    receipt = check_receipt(results, path)
    if receipt.is_quick:
        raise NotRun(f"{measure.file} is of a quick run, too small for claims")
    value, device = _from_table(path, measure) if path.suffix == ".csv" else (_from_json(path, measure), "")
    machine = f"{device}; {receipt.machine}" if device and device not in receipt.machine else receipt.machine
    return Reading(value, (measure.file,), machine, receipt.written_at)


def combine(measure: MeasureSettings, read: Callable[[MeasureSettings], Reading]) -> Reading:
    """Return the quotient or the difference of two numbers.

    Raises:
        StoreError: a division by zero.
    """
    pair = measure.ratio or measure.difference
    assert pair is not None
    first, second = read(pair.of), read(pair.to)
    if measure.ratio is not None and second.number == 0:
        raise StoreError(f"{second.files[0]}: a number to divide by is 0", _REMEDY)
    value = first.number / second.number if measure.ratio is not None else first.number - second.number
    return Reading(value, (*first.files, *second.files), first.machine or second.machine, first.written_at)


def matching_rows(path: Path, where: Mapping[str, str | float | list[str]]) -> list[dict[str, str]]:
    """Return the rows of a table whose columns have these values; numbers are compared as numbers.

    Raises:
        StoreError: not a table, or it lacks such a column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            rows, header = list(reader), reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path}: cannot be read as a table: {error}", _REMEDY) from error
    if missing := [name for name in where if name not in header]:
        raise StoreError(f"{path}: no column '{missing[0]}'", _REMEDY)
    return [row for row in rows if all(_is_same(row[name], value) for name, value in where.items())]


def _is_same(text: str, wanted: str | float | list[str]) -> bool:
    if isinstance(wanted, list):
        return text in wanted
    if isinstance(wanted, str):
        return text == wanted
    try:
        return float(text) == wanted
    except (TypeError, ValueError):
        return False


def _from_table(path: Path, measure: MeasureSettings) -> tuple[Value, str]:
    """Return the number, and the device of its row where the table names one."""
    column, rows = str(measure.column), matching_rows(path, measure.where)
    if measure.statistic == "last":
        rows = rows[-1:]
    if not rows:
        wanted = ", ".join(f"{k} {v}" for k, v in measure.where.items())
        raise NotRun(f"{path.name} has no row with {wanted}" if wanted else f"{path.name} has no row")
    if column not in rows[0]:
        raise StoreError(f"{path}: no column '{column}'", _REMEDY)
    if measure.statistic == "only" and len(rows) > 1:
        raise StoreError(f"{path}: {len(rows)} rows where a claim wants one", "run the benchmark again")
    # A contender that met its time limit has a row without a number.
    there = [row for row in rows if row[column]]
    if len(there) < len(rows) and measure.statistic not in ("slope", "spread"):
        raise NotRun(rows[0].get("status") or f"{path.name}: '{column}' is empty")
    device = next(
        (there[0][name] for name in ("device", "device_kind", "platform") if there and there[0].get(name)), ""
    )
    if measure.statistic in ("only", "last"):
        return _plain(there[0][column]), device
    values = [_number(path, row, column) for row in there]
    along = [_number(path, row, measure.against) for row in there] if measure.against else []
    return _reduce(str(path), values, measure.statistic, along), device


def _plain(text: str) -> Value:
    """Return a cell as a number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def _number(path: Path, row: Mapping[str, str], column: str) -> float:
    if column not in row:
        raise StoreError(f"{path}: no column '{column}'", _REMEDY)
    try:
        return float(row[column])
    except ValueError as error:
        raise StoreError(f"{path}: column '{column}': {row[column]!r:.80} is not a number", _REMEDY) from error


def _reduce(where: str, values: Sequence[float], statistic: str, along: Sequence[float] = ()) -> float:
    """Return one number of several; the entropy is in nats, of values that are scaled to add to 1.

    >>> _reduce("x", [1.0, 10.0, 100.0], "slope", [1.0, 10.0, 100.0]), _reduce("x", [2.0, 3.0], "spread")
    (1.0, 1.5)
    """
    array = np.asarray(values, np.float64)
    if statistic in ("slope", "spread") and len(array) < 2:
        raise NotRun("fewer than two points")
    if statistic in ("slope", "spread") and (array.min() <= 0 or (along and min(along) <= 0)):
        raise StoreError(f"{where}: a value that is not positive has no logarithm", _REMEDY)
    found: dict[str, Callable[[], float]] = {
        "mean": lambda: array.mean(),
        "sd": lambda: array.std(ddof=1),
        "variance": array.var,
        "min": array.min,
        "max": array.max,
        "sum": array.sum,
        "count": lambda: array.size,
        "distinct": lambda: len(np.unique(array)),
        "entropy": lambda: -sum(p * math.log(p) for p in array / array.sum() if p > 0),
        "spread": lambda: array.max() / array.min(),
        "slope": lambda: np.polyfit(np.log(along), np.log(array), 1)[0],
    }
    if statistic not in found:
        raise StoreError(f"{where}: '{statistic}' is not a statistic of a table", "take another one")
    return float(round(float(found[statistic]()), 12) if statistic == "slope" else found[statistic]())


def _from_json(path: Path, measure: MeasureSettings) -> Value:
    value = read_json(path)
    for key in measure.path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError) as error:
            raise StoreError(f"{path}: there is no {' / '.join(map(str, measure.path))}", _REMEDY) from error
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise NotRun(f"{path.name}: {' / '.join(map(str, measure.path))} has no value")
    return value


def store_of(results: Path, path: Path, arrays: Sequence[str]) -> Posterior:
    """Return a store of draws, after hashing the arrays that are read.

    Raises:
        NotRun: there is none.
        StoreError: an array is not as it was written, or the store has no list of hashes.
    """
    if not path.exists():
        raise NotRun(f"{path.relative_to(results)} is not there")
    listed = hashes_of(path)
    for array in arrays:
        prefix = f"{path.name}/{array}/"
        files = {name: value for name, value in listed.items() if name.startswith(prefix)}
        if not files:
            raise StoreError(f"{path}: no array '{array}'", _REMEDY)
        for name, value in files.items():
            file = path.parent / name
            if not file.is_file() or hash_file(file) != value:
                raise StoreError(f"{file}: not what the run stored: its sha256 is another", _REMEDY)
    return Posterior(path)


def _from_array(results: Path, path: Path, measure: MeasureSettings) -> Reading:
    """Return a statistic over the leading axes (chain, draw) of an array, at a position of the other axes."""
    array = store_of(results, path, [str(measure.column)]).array(*str(measure.column).rsplit("/", 1))
    name = path.relative_to(results).as_posix()
    if measure.statistic == "shape":
        return Reading(", ".join(map(str, array.shape)), (name,))
    values = np.asarray(array[...])
    try:
        position: Any = (slice(None), slice(None), *measure.path)
        values = values[position] if measure.path else values
    except IndexError as error:
        raise StoreError(f"{path}: {measure.column} has no entry {measure.path}", _REMEDY) from error
    flat = values.astype(np.float64).ravel()
    if not np.isfinite(flat).all():
        return Reading(math.nan, (name,))
    if measure.statistic == "only":
        if flat.size != 1:
            raise StoreError(f"{path}: {measure.column} has {flat.size} values where a claim wants one", _REMEDY)
        return Reading(float(flat[0]), (name,))
    return Reading(_reduce(str(path), list(flat), measure.statistic), (name,))
