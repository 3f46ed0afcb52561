"""Read new rows for a table with the levels, means and scales of its columns."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesmesh.data.tables.columns import is_missing, level_of
from bayesmesh.data.tables.formats import TableFile
from bayesmesh.data.tables.options import TableOptions
from bayesmesh.data.tables.reader import TableReader
from bayesmesh.data.tables.spool import Spool, fields_of
from bayesmesh.errors import DataError, suggest

_OF_EXPERIMENT = re.compile(r"\bdata[:.]|\b(columns|levels|missing_values|rows|types): |`format`")
"""Matches a remedy that names a key of the experiment, which determines how its own table was read."""

_REMEDY = "correct the file, leave out the row, or leave out the column if predictions do not depend on it"


@contextlib.contextmanager
def _of_new_table() -> Iterator[None]:
    """Drop the parts of remedies that name keys of the experiment."""
    try:
        yield
    except DataError as error:
        first = error.remedy.partition(", or ")[0]
        of_file = next((text for text in (error.remedy, first) if text and not _OF_EXPERIMENT.search(text)), _REMEDY)
        raise DataError(error.message, of_file) from error


class NewRows:
    """The rows of a file, as fields of a table that was read earlier.

    Args:
        path: the file.
        about: description of that table, as `Source.fetch` of `bayesmesh.data.sources.table` keeps it.
        options: its options; its delimiter and the texts of missing values also hold for the file.
        folder: an empty folder for the columns.
        new_levels: categories that may have levels which that table lacks; these take the codes after its own.
        could: categories that could be in `new_levels` on request, for messages.
        outcome: columns that predictions do not read, and that may therefore lack values in some rows.

    Attributes:
        num_rows: rows of the file.
        fields: field -> array of rows, for fields whose columns the file has.
        absent: field -> the columns that the file lacks, or that are set aside.
        set_aside: column -> first row without a value: columns that are empty, and those of the outcome with an empty cell.
        added: column -> its new levels.

    Raises:
        DataError: the file cannot be read or has none of the columns, a cell is invalid or empty, or a level is new; the
            message names the file and the row.
    """

    def __init__(
        self,
        path: Path,
        about: Mapping[str, Any],
        options: TableOptions,
        folder: Path,
        new_levels: Collection[str] = (),
        could: Collection[str] = (),
        outcome: Collection[str] = (),
    ) -> None:
        described: Mapping[str, Any] = about["columns"]
        spool, found = self._read(path, described, options, folder)
        self.num_rows = spool.num_rows
        present = [name for name in described if name in found]
        numbers_missing = {name: found[name]["missing"] for name in present if "missing" not in described[name]}
        self.set_aside = {
            name: self._first_missing(path, spool, name, is_needed=number < self.num_rows and name not in outcome)
            for name, number in numbers_missing.items()
            if number
        }
        present = [name for name in present if name not in self.set_aside]
        self.added: dict[str, tuple[str, ...]] = {}
        columns = {}
        for name in present:
            columns[name] = dict(described[name])
            if described[name]["kind"] == "category":
                columns[name]["codes"] = self._codes(path, spool, name, described[name], found[name], new_levels, could)
        wanted: Mapping[str, Any] = about["fields"]
        needed = {field: [named] if isinstance(named, str) else list(named) for field, named in wanted.items()}
        self.absent = {
            field: [name for name in named if name not in columns] for field, named in needed.items()
            if any(name not in columns for name in named)
        }  # fmt: skip
        self.fields = fields_of(
            spool, columns, {field: named for field, named in wanted.items() if field not in self.absent}
        )

    @staticmethod
    def _read(
        path: Path, described: Mapping[str, Any], options: TableOptions, folder: Path
    ) -> tuple[Spool, Mapping[str, Any]]:
        """Return the rows of the columns that are also in the experiment's table, and a description of each column."""
        form = options.format if path.suffix.lower() in {Path(name).suffix.lower() for name in options.files} else None
        delimiter = options.delimiter if path.suffix.lower() == ".csv" else None
        with _of_new_table():
            names = TableFile(path, form, delimiter).names
        present = tuple(name for name in described if name in names)
        if not present:
            raise DataError(f"{path}: none of the columns of the experiment's table", suggest(names[0], described))
        # Rows to predict need no weights; which columns must hold a value in every row is decided after they have been read.
        table = TableOptions(
            files=(str(path),), format=form, delimiter=delimiter, columns=present, missing_values=options.missing_values,
            types={name: described[name]["kind"] for name in present}, indicate_missing=present,
        )  # fmt: skip
        with _of_new_table():
            found = TableReader(table).spool(folder)
        return Spool(folder, found["numbers"], found["codes"]), found["columns"]

    @staticmethod
    def _first_missing(path: Path, spool: Spool, name: str, *, is_needed: bool) -> int:
        """Return the first row, from 1, that lacks a value of a column; refuse it if the column is needed."""
        row = spool.first_row(name, is_missing) + 1
        if is_needed:
            raise DataError(f"{path}, row {row}: '{name}' holds no value", _REMEDY)
        return row

    def _codes(
        self,
        path: Path,
        spool: Spool,
        name: str,
        known: Mapping[str, Any],
        found: Mapping[str, Any],
        new: Collection[str],
        could: Collection[str],
    ) -> list[int]:
        """Return the code of each level of the file in the order of the spool, and note levels that are new."""
        codes = {level_of(level): code for code, level in enumerate(known["levels"])}
        # Cells without a value take the code after the last level.
        first = len(codes) + int("missing" in known)
        levels = [found["levels"][final] for final in found["codes"]]
        added = [level for level in levels if level not in codes]
        if added and name not in new:
            place = levels.index(added[0])
            row = spool.first_row(name, lambda cells: cells == place)
            others = "" if len(added) == 1 else f", and {len(added) - 1} other levels are new"
            problem = (
                f"{path}, row {row + 1}: '{name}' is '{added[0]}', which the experiment's table did not have{others}"
            )
            remedy = f"use --new-levels, which draws its effects from their population; or {suggest(added[0], codes)}"
            raise DataError(problem, remedy if name in could else suggest(added[0], codes))
        if added:
            self.added[name] = tuple(added)
            codes |= {level: first + i for i, level in enumerate(added)}
        return [codes[level] for level in levels]
