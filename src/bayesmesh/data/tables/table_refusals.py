"""Refuse columns that are not what they seem: guessed categories of numbers, and types that hold no value in each row."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bayesmesh.data.tables.level_texts import MISSING_TEXTS, doubtful_number, is_number, levels_alike, seem_to_be
from bayesmesh.data.tables.table_columns import composed
from bayesmesh.data.tables.table_files import TableFile
from bayesmesh.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


def check_guess(path: Path, name: str, levels: Sequence[str], *, is_text: bool, is_stored: bool) -> None:
    """Refuse an undeclared category whose levels seem to be numbers, or are one level written in two ways.

    Dates, and numbers in a format that declares them as text, are only reported in the log.

    Args:
        path: the file that a message names.
        name: the column.
        levels: its levels.
        is_text: whether numbers are stored as text.
        is_stored: whether the column was stored as a category.

    Raises:
        DataError: names the file and the column.
    """
    kind = None if is_stored else seem_to_be(levels)
    if kind == "time" or (kind == "number" and not is_text):
        missing = [level for level in levels if level in MISSING_TEXTS]
        _log.warning(
            "warning: %s: '%s' holds texts that seem to be %s (%s) and is a category with %d levels; %s which it is: types: {%s: %s}%s, or category",
            path, name, "dates" if kind == "time" else "numbers",
            ", ".join(f"'{level}'" for level in levels[:4]), len(levels),
            "write them as 2026-11-23 and say" if kind == "time" else "say", name, kind,
            f" and missing_values: [{', '.join(missing)}]" if missing else "",
        )  # fmt: skip
    if is_text and (text := doubtful_number(levels)) is not None:
        shown = ", ".join(f"'{level}'" for level in levels[:4])
        why = "has more digits than a float64 holds exactly" if is_number(text) else "is not a number"
        raise DataError(
            f"{path}: '{name}' would be a category, because '{text}' {why}, but its cells seem to be ({shown})",
            "write numbers as 1500.5, list other texts in the key 'data.missing_values', or say that it is one:\n"
            f"    data:\n      types:\n        {name}: category",
        )
    if (alike := levels_alike(levels)) is not None:
        raise DataError(
            f"{path}: '{alike[0]}' and '{alike[1]}' would be two levels of '{name}', and differ in case or spaces alone",
            f"write them alike in the file, or say that they are two:\n    data:\n      types:\n        {name}: category",
        )


def refuse_twins(levels: Mapping[str, Sequence[str]]) -> None:
    """Refuse a level that is listed twice in the key ``data.levels``; accents written in two ways do not differ."""
    for name, listed in levels.items():
        seen: set[str] = set()
        for text in map(composed, listed):
            if text in seen:
                raise DataError(f"key 'data.levels.{name}': '{text}' is listed twice", "list every level once")
            seen.add(text)


def refuse_duration(file: TableFile, name: str, cells: pa.Array) -> None:
    """Refuse durations and times of day, which are neither numbers nor moments."""
    import pyarrow as pa

    if pa.types.is_duration(cells.type) or pa.types.is_time(cells.type):
        raise DataError(
            f"{file.path}: '{name}' holds {cells.type} instead of a number or a text in each row",
            f"write it as a number, such as hours, or leave it out:\n    data:\n      columns: ['*', '-{name}']",
        )


def refuse_type(file: TableFile, name: str, cells: pa.Array) -> None:
    """Refuse cells that hold several values, and extension types."""
    import pyarrow as pa

    refuse_duration(file, name, cells)
    # The numbers that store a pandas period or interval are not its values.
    if pa.types.is_nested(cells.type) or isinstance(cells.type, pa.BaseExtensionType):
        raise DataError(
            f"{file.path}: '{name}' holds {cells.type} instead of a number or a text in each row",
            f"leave it out:\n    data:\n      columns: ['*', '-{name}']\n  or write its parts into columns of their own",
        )
