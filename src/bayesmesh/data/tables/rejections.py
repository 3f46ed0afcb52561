"""Refuse columns that are not what they seem: guessed categories of numbers, and types that hold no value in each row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayesmesh.data.tables.columns import level_of
from bayesmesh.data.tables.files import TableFile
from bayesmesh.data.tables.level_texts import (
    MISSING_TEXTS,
    doubtful_number,
    is_number,
    levels_alike,
    marks_of_missing,
    numbers_alike,
    seem_to_be,
)
from bayesmesh.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_FEW = 3
"""Smallest number of equal cells that are taken for marks of missing values."""


def check_guess(path: Path, name: str, levels: Sequence[str], *, is_text: bool, is_stored: bool) -> str:
    """Refuse an undeclared category whose levels seem to be numbers, or are one level written in two ways.


    Args:
        path: the file that a message names.
        name: the column.
        levels: its levels.
        is_text: whether numbers are stored as text.
        is_stored: whether the column was stored as a category.

    Returns:
        A warning of dates, and of numbers in a format that declares them as text; else an empty text.

    Raises:
        DataError: names the file and the column.
    """
    warning, kind = "", None if is_stored else seem_to_be(levels)
    if kind == "time" or (kind == "number" and not is_text):
        missing = [level for level in levels if level in MISSING_TEXTS]
        shown = ", ".join(f"'{level}'" for level in levels[:4])
        warning = (
            f"{path}: '{name}' holds texts that seem to be {'dates' if kind == 'time' else 'numbers'} ({shown}) and is a category"
            f" with {len(levels)} levels; {'write them as 2026-11-23 and say' if kind == 'time' else 'say'} which it is:"
            f" types: {{{name}: {kind}}}{f' and missing_values: {json.dumps(missing)}' if missing else ''}, or category"
        )
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
    return warning


def refuse_notations(path: Path, name: str, levels: Sequence[str]) -> None:
    """Refuse levels of a category that are one number in two notations, such as 1000 and 1e3."""
    if (alike := numbers_alike(levels)) is not None:
        raise DataError(
            f"{path}: '{alike[0]}' and '{alike[1]}' would be two levels of '{name}', and are the same number",
            f"write them alike in the file, or list all levels:\n    data:\n      levels:\n        {name}: {json.dumps(alike)[:-1]}, ...]",
        )


def warn_of_marks(
    name: str, levels: Sequence[str], blocks: Iterable[np.ndarray], texts: Sequence[str]
) -> Iterable[str]:
    """Yield a warning of levels that often stand for a missing value.

    Args:
        name: the column.
        levels: its levels.
        blocks: codes of its cells, block by block.
        texts: texts that stand for a missing value in these files.
    """
    if marks := marks_of_missing(levels):
        counts = np.sum([np.bincount(block, minlength=len(levels)) for block in blocks], axis=0)
        numbers = [int(counts[levels.index(mark)]) for mark in marks]
        listed = ", ".join(f"'{m}' ({n:,} cell{'s' if n > 1 else ''})" for m, n in zip(marks, numbers, strict=True))
        yield (
            f"'{name}' has levels that often mark a missing value: {listed}; if they do, write missing_values:"
            f" {json.dumps([*texts, *marks], ensure_ascii=False)}"
        )


def warn_of_sentinel(name: str, number: float, blocks: Iterable[np.ndarray], remedy: str) -> Iterable[str]:
    """Yield a warning of a number such as -999 that is repeated and lies far from all others.

    Args:
        name: the column.
        number: its smallest or its largest number.
        blocks: its numbers, block by block, NaN where missing.
        remedy: how to have it read as missing.
    """
    count, low, high = 0, np.inf, -np.inf
    for block in blocks:
        others = block[block != number]
        count += len(block) - len(others)
        low, high = np.fmin.reduce(others, initial=low), np.fmax.reduce(others, initial=high)
    is_far = (number < 0 <= low) or max(low - number, number - high) > high - low
    if count >= _FEW and low <= high and is_far:
        yield (
            f"'{name}' is {number:.10g} in {count:,} rows and between {low:g} and {high:g} in all others; if it marks a missing"
            f" value, {remedy}"
        )


def refuse_twins(levels: Mapping[str, Sequence[str]]) -> None:
    """Refuse a level that is listed twice in the key ``data.levels``; accents written in two ways do not differ."""
    for name, listed in levels.items():
        seen: set[str] = set()
        for text in map(level_of, listed):
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
