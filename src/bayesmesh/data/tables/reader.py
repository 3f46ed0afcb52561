"""Read the files of a table once, from the first row to the last, and spool the requested rows and columns."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.data.tables.checks import (
    MISSING_TEXTS,
    check_guess,
    is_number,
    is_sentinel,
    refuse_duration,
    refuse_notations,
    refuse_twins,
    refuse_type,
    warn_of_marks,
    warn_of_sentinel,
)
from bayesmesh.data.tables.columns import (
    INDEX,
    NO_LEVEL,
    Kind,
    Levels,
    Misfit,
    choose_columns,
    declared_columns,
    first_padded,
    infer_kind,
    is_missing,
    to_numbers,
    without_missing,
)
from bayesmesh.data.tables.formats import Block, TableFile, same_columns
from bayesmesh.data.tables.options import ROLES, TableOptions
from bayesmesh.data.tables.row_filter import Cells, RowFilter, Texts, Times
from bayesmesh.data.tables.spool import Spool, SpoolWriter
from bayesmesh.errors import DataError
from bayesmesh.store.records.files import find_files

_log = logging.getLogger(__name__)


class TableReader:
    """The chosen columns of some files.

    Args:
        options: kinds, levels, missing cells and rows.

    Raises:
        DataError: a file or an option does not fit the table; the message names the file or the key.
    """

    def __init__(self, options: TableOptions) -> None:
        self._options = options
        paths = find_files(options.files, "data.files")
        self._files = [TableFile(path, options.format, options.delimiter) for path in paths]
        names = same_columns(self._files)
        self._names = choose_columns(names, options.columns, "data.columns")
        if not self._names:
            raise DataError("key 'data.columns': no column is left", "leave fewer out, for example columns: ['*']")
        types = declared_columns(names, options.types, "data.types")
        self._declared = declared_columns(names, options.levels, "data.levels")
        refuse_twins(options.levels)
        self._filter = RowFilter(options.rows, names) if options.rows else None
        used = dict.fromkeys([*self._names, *(self._filter.names if self._filter else ())])
        self._kinds: dict[str, Kind | None] = {
            name: "category" if name in self._declared else types.get(name) for name in used
        }
        open_names = {name for name, kind in self._kinds.items() if kind is None}
        self._settle()
        self._is_text = any(file.is_text for file in self._files)
        self._numbers = {name for name in open_names if self._is_text and self._kinds[name] == "number"}
        self._guessed = {name for name in open_names if self._kinds[name] == "category"}
        self._categories, self._warnings = set[str](), list[str]()
        self._ends: dict[str, tuple[float, float]] = {}
        self._levels = {n: Levels(self._declared.get(n)) for n in self._names if self._kinds[n] == "category"}
        self._needed, self._left_out = (
            self._find_needed(),
            {name for name in names if INDEX.fullmatch(name)} - {*self._names},
        )
        self._indicated = choose_columns(self._names, options.indicate_missing, "data.indicate_missing")
        self._standardised = choose_columns(self._names, options.standardise, "data.standardise")
        for name in self._standardised:
            if name in self._levels:
                raise DataError(
                    f"key 'data.standardise': '{name}' is a category", "leave it out, or declare it in `types`"
                )

        self._check_roles()

    def _find_needed(self) -> set[str]:
        """Return the columns whose missing values count."""
        options = self._options
        if options.needed is None:
            return {*self._names}
        # Python's parser, which reads formulas, normalises names.
        words = {unicodedata.normalize("NFKC", name) for name in options.needed}
        of_fields = [named for field, named in options.fields.items() if unicodedata.normalize("NFKC", field) in words]
        patterns = [each for named in of_fields for each in ([named] if isinstance(named, str) else named)]
        found = {name for name in self._names if unicodedata.normalize("NFKC", name) in words}
        roles = {column for role in ROLES if (column := getattr(options, role)) is not None}
        return found | roles | {*choose_columns(self._names, patterns, "data.fields")}

    def _check_roles(self) -> None:
        """Refuse a role for a column that is not read, is not numeric, or is changed by other options."""
        for role in ROLES:
            column: str | None = getattr(self._options, role)
            if column is None:
                continue
            choose_columns(self._names, [column], f"data.{role}")
            changed = {"standardise": self._standardised, "indicate_missing": self._indicated}
            for key, names in changed.items():
                if column in names:
                    raise DataError(f"key 'data.{role}': '{column}' is also in '{key}'", f"leave it out: {key}: ['-{column}']")  # fmt: skip
            if column in self._levels:
                raise DataError(f"key 'data.{role}': '{column}' is a category", "name a column of numbers")

    def _check_signs(self, file: TableFile, numbers: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Refuse negative weights, and exposures that are not positive."""
        for role, name, needs in (("weights", self._options.weights, "that are 0 or greater"), ("exposure", self._options.exposure, "greater than 0")):  # fmt: skip
            if name is None:
                continue
            values = columns[name]
            fits = values >= 0 if role == "weights" else values > 0
            if not fits.all():
                at = int(np.argmin(fits))
                raise DataError(f"{file.path}, row {numbers[at]}: '{name}' is {values[at]:g}, and {'weights' if role == 'weights' else 'exposures'} are numbers {needs}", f"correct the cell, or leave such rows out: rows: {name} {'>=' if role == 'weights' else '>'} 0")  # fmt: skip

    def _settle(self) -> None:
        """Infer the kinds of columns without a declared one from their first cells that hold a value."""
        open_names = [name for name, kind in self._kinds.items() if kind is None]
        for file in self._files if open_names else ():
            for block in self._blocks_of(file, open_names):
                for name in open_names:
                    refuse_type(file, name, block.cells[name])
                found = {
                    name: infer_kind(block.cells[name], is_text_format=file.is_text or name in file.keys)
                    for name in open_names
                }
                self._kinds |= found
                open_names = [name for name in open_names if found[name] is None]
                if not open_names:
                    return
        if open_names:
            if not any(len(block) for file in self._files for block in file.blocks(open_names[:1])):
                raise self._no_rows({"read": 0})
            raise DataError(
                f"{self._files[0].path}: column '{open_names[0]}' holds no value in any row",
                f"leave it out:\n    data:\n      columns: ['*', '-{open_names[0]}']",
            )

    def _blocks_of(self, file: TableFile, names: Sequence[str]) -> Iterator[Block]:
        texts = self._missing_texts(file)
        for block in file.blocks(names):
            yield Block(block.first, {name: without_missing(cells, texts) for name, cells in block.cells.items()})

    def _missing_texts(self, file: TableFile) -> Sequence[str]:
        missing = self._options.missing_values
        return missing if missing is not None else MISSING_TEXTS if file.is_text else ()

    def spool(self, folder: Path) -> dict[str, Any]:
        """Write the rows to the folder and return their description.

        Returns:
            ``numbers`` and ``codes``, the columns in the order of the spool; ``columns``, each -> kind, levels, their
            final codes, mean and scale, number of missing cells; ``counts`` of the rows read, kept and left out;
            ``kept_rows``, a digest of the numbers of the kept rows, empty if none was left out; ``warnings``.

        Raises:
            DataError: a cell does not fit its column; the message names file and row.
        """
        import pyarrow as pa

        numbers = [name for name in self._names if name not in self._levels]
        writer = SpoolWriter(folder, numbers, list(self._levels))
        counts, kept_rows = {"read": 0, "not_chosen": 0, "incomplete": 0}, hashlib.sha256()
        for file in self._files:
            for block in self._blocks_of(file, list(self._kinds)):
                for name in self._kinds:
                    refuse_duration(file, name, block.cells[name])
                self._categories |= {name for name in self._kinds if pa.types.is_dictionary(block.cells[name].type)}
                rows = self._choose(file, block)
                columns = {name: self._decode(file, block, rows, name) for name in self._names}
                kept = self._complete(file, block.first + rows, columns)
                chosen = {name: values[kept] for name, values in columns.items()}
                self._check_signs(file, (block.first + rows)[kept], chosen)
                writer.append(chosen)
                others = [name for name in self._names if name not in self._needed and name not in self._indicated]
                self._left_out |= {name for name in others if is_missing(chosen[name]).any()}
                for name in numbers:
                    low, high = self._ends.get(name, (np.inf, -np.inf))
                    self._ends[name] = (
                        np.fmin.reduce(chosen[name], initial=low), np.fmax.reduce(chosen[name], initial=high),
                    )  # fmt: skip
                kept_rows.update((counts["read"] + rows[kept]).astype("<i8").tobytes())
                counts["read"] += len(block)
                counts["not_chosen"] += len(block) - len(rows)
                counts["incomplete"] += len(rows) - int(kept.sum())
        writer.close()
        if not writer.num_rows:
            raise self._no_rows(counts)
        described = self._describe(folder, numbers)
        for warning in self._warnings:
            _log.warning("warning: %s", warning)
        index = {name for name in self._left_out if INDEX.fullmatch(name)}
        for why, names in (("name the rows", index), ("lack values and nothing needs them", self._left_out - index)):
            if names:
                _log.info("columns left out, because they %s: %s", why, ", ".join(map(repr, sorted(names))))
        return {
            "numbers": numbers, "codes": list(self._levels), "columns": described,
            "counts": counts | {"kept": writer.num_rows},
            "kept_rows": kept_rows.hexdigest() if writer.num_rows < counts["read"] else "",
            "warnings": self._warnings, "left_out": sorted(self._left_out),
        }  # fmt: skip

    def _no_rows(self, counts: Mapping[str, int]) -> DataError:
        first = self._files[0].path
        if not counts["read"]:
            return DataError(f"{first}: the file holds no rows", "write rows below its header, or correct the key 'data.files'")  # fmt: skip
        left_out = f"{counts['not_chosen']:,} by the key 'data.rows', {counts['incomplete']:,} for missing values"
        return DataError(
            f"{first}: no row is left of {counts['read']:,}: {left_out}", "correct 'data.rows' or 'data.missing'"
        )

    def _choose(self, file: TableFile, block: Block) -> np.ndarray:
        """Return the indices of the rows of a block that the filter keeps."""
        if self._filter is None:
            return np.arange(len(block))
        every = np.arange(len(block))
        columns: dict[str, Cells] = {}
        for name in self._filter.names:
            kind = self._kinds[name]
            if kind == "category":
                levels = Levels()
                codes = self._decode(file, block, every, name, levels)
                columns[name] = Texts(codes, levels.found())
            else:
                values = self._decode(file, block, every, name)
                columns[name] = Times(values) if kind == "time" else values
        return np.flatnonzero(self._filter(columns, len(block)))

    def _decode(
        self, file: TableFile, block: Block, rows: np.ndarray, name: str, levels: Levels | None = None
    ) -> np.ndarray:
        """Return the numbers of some cells, or the codes of levels, by default those of the column."""
        kind, cells = self._kinds[name], block.cells[name]
        cells = cells if len(rows) == len(cells) else cells.take(rows)
        try:
            if kind == "category":
                return (levels or self._levels[name]).encode(cells)
            values = to_numbers(cells, kind or "number")
        except Misfit as error:
            raise self._misfit(file, block.first + int(rows[error.cell]), name, error.text) from error
        if name in self._numbers and (padded := first_padded(cells)) is not None:
            self._numbers.remove(name)
            self._warnings.append(
                f"'{name}' holds '{padded}', which is read as a number without its zeros; if these belong to it, write types:"
                f" {{{name}: category}}, else types: {{{name}: number}}"
            )
        if np.isinf(values).any():
            row = block.first + int(rows[np.argmax(np.isinf(values))])
            raise DataError(f"{file.path}, row {row}: '{name}' is infinite", "correct the cell, or leave the row out")
        return values

    def _misfit(self, file: TableFile, row: int, name: str, text: str) -> DataError:
        where, kind = f"{file.path}, row {row}: '{name}'", self._kinds[name]
        if kind == "category" and text.startswith("a value of type"):
            out = f"columns: ['*', '-{name}']" if name in self._names else "do not name it in the key 'data.rows'"
            return DataError(f"{where} holds {text} instead of a text", f"leave the column out: {out}")
        if kind == "category" and name not in self._declared:
            return DataError(f"{where}: more than 1,048,576 levels", f"leave the column out: columns: ['*', '-{name}']")
        if kind == "category":
            key = f"data.levels.{name}" if name in self._options.levels else "data.levels"
            return DataError(f"{where} is '{text}', which is not among its levels", f"add it to the key '{key}'")
        if text.lstrip("+-").isdecimal() and kind != "time":
            return DataError(
                f"{where} is {text}, a whole number with more digits than a float64 holds exactly",
                f"if it is the name of something, declare the column:\n    data:\n      types:\n        {name}: category\n"
                "  or subtract what its values have in common",
            )
        if kind == "time" and is_number(text):
            return DataError(
                f"{where} is not a time such as 2026-11-23 but '{text}'",
                "write it as a time in the file, or read the numbers as they are, if all of them are numbers:\n"
                f"    data:\n      types:\n        {name}: number",
            )
        word = {"integer": "a whole number", "time": "a time such as 2026-11-23"}.get(kind or "", "a number")
        return DataError(
            f"{where} is not {word} but '{text}'",
            "correct the cell, list the text in the key 'data.missing_values', or write\n"
            f"    data:\n      types:\n        {name}: category",
        )

    def _complete(self, file: TableFile, numbers: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return which rows have all needed values, and refuse the others unless they are to be dropped.

        Args:
            file: the file.
            numbers: numbers of the rows in the file.
            columns: column -> values or codes of these rows.
        """
        needed = {name: values for name, values in columns.items() if name in self._needed - {*self._indicated}}
        gone = {name: is_missing(values) for name, values in needed.items()}
        is_gone = np.logical_or.reduce([np.zeros(len(numbers), bool), *gone.values()])
        if self._options.missing == "drop" or not is_gone.any():
            return ~is_gone
        row = int(np.argmax(is_gone))
        name = next(name for name, each in gone.items() if each[row])
        raise DataError(
            f"{file.path}, row {numbers[row]}: '{name}' holds no value",
            "leave such rows out, and have them counted in the report:\n    data:\n      missing: drop\n"
            f"  or, unless it is the outcome, keep them and say where it is missing: indicate_missing: [{name}]\n"
            f"  or leave the column out: columns: ['*', '-{name}']",
        )

    def _describe(self, folder: Path, numbers: Sequence[str]) -> dict[str, dict[str, Any]]:
        described: dict[str, dict[str, Any]] = {}
        spool = Spool(folder, numbers, list(self._levels))
        for name in self._names:
            described[name] = {"kind": self._kinds[name]}
            if name in self._indicated:
                described[name]["missing"] = sum(
                    int(is_missing(spool.read(name, *each)).sum()) for each in spool.blocks()
                )
            if name in self._levels:
                levels, codes = self._levels[name].ordered()
                if name in self._guessed:
                    is_stored = name in self._categories
                    warning = check_guess(self._files[0].path, name, levels, is_text=self._is_text, is_stored=is_stored)
                    self._warnings += [warning] if warning and name in self._needed else []
                if name not in self._declared:
                    refuse_notations(self._files[0].path, name, levels)
                    blocks = (spool.read(name, *each) for each in spool.blocks())
                    found = (codes[block[block != NO_LEVEL]] for block in blocks)
                    self._warnings += warn_of_marks(name, levels, found, self._missing_texts(self._files[0]))
                described[name] |= {
                    "levels": list(levels),
                    "codes": codes.tolist(),
                    "is_ordered": name in self._declared,
                }
                continue
            for number in filter(is_sentinel, self._ends[name]):
                values = (spool.read(name, *each) for each in spool.blocks())
                texts = json.dumps([*self._missing_texts(self._files[0]), f"{number:.10g}"])
                remedy = (
                    f"write missing_values: {texts}" if self._is_text else "leave such rows out with the key `rows`"
                )
                self._warnings += warn_of_sentinel(name, number, values, remedy)
            if name in self._standardised or name in self._indicated:
                mean, scale = _moments(spool, name)
                described[name]["fill"] = mean
                if name in self._standardised and not scale:
                    raise DataError(
                        f"key 'data.standardise': '{name}' has the same value, {mean:g}, in all rows", "leave it out"
                    )
                if name in self._standardised:
                    described[name] |= {"mean": mean, "scale": scale}
        return described


def _moments(spool: Spool, name: str) -> tuple[float, float]:
    """Return the mean and standard deviation of a column's values, with their number as divisor, in two passes."""
    ranges = spool.blocks()
    count = sum(int((~np.isnan(spool.read(name, *each))).sum()) for each in ranges)
    if not count:
        return 0.0, 0.0
    ends = [
        (np.fmin.reduce(values), np.fmax.reduce(values)) for each in ranges if len(values := spool.read(name, *each))
    ]
    low, high = np.fmin.reduce([each[0] for each in ends]), np.fmax.reduce([each[1] for each in ends])
    if low == high:
        # The mean of equal numbers is rounded, so that they would seem to vary by a few units in the last place.
        return float(low), 0.0
    mean = math.fsum(float(np.nansum(spool.read(name, *each))) for each in ranges) / count
    squares = math.fsum(float(np.nansum(np.square(spool.read(name, *each) - mean))) for each in ranges)
    return mean, math.sqrt(squares / count)
