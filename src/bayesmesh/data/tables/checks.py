"""Detect columns that are not what they seem: categories of numbers or dates, one level in two notations, marks of missing values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayesmesh.data.tables.columns import EXACT, Kind, level_of
from bayesmesh.data.tables.formats import TableFile
from bayesmesh.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")
"""Texts that stand for a missing value in text formats, unless the source defines others."""

_SIGN = r"[A-Z]{0,2}[$€£¥₹₩₽₺₪]"

_UNIT_BEFORE, _UNIT_AFTER = rf"(?:{_SIGN}|(?:EUR|USD|GBP|CHF)\s)", rf"(?:{_SIGN}|EUR|USD|GBP|CHF)"
"""Currencies; without a space before the number, GBP1 is the name of a gene."""

_WRITTEN_NUMBER = re.compile(
    rf"""
    (?!\d{{1,3}}(?:\.\d{{1,3}}){{3}}$)                                      # not an IPv4 address
    [+-]?\s?{_UNIT_BEFORE}?\s?[+-]?
    (?: [1-9]\d{{0,2}}(?P<mark>[,._ '])\d{{3}}(?:(?P=mark)\d{{3}})*(?:[.,]\d+)? # 1,500 and 1.234,50 and 1'500
      | [1-9]\d?(?:,\d\d)+,\d{{3}}(?:\.\d+)?                                # 12,34,567
      | \d+(?:[.,]\d+)? )                                                   # 1,5 and, beside a unit, 15.00
    (?:[eE][+-]?\d+)?
    \s?(?:[%‰]|{_UNIT_AFTER})?
    """,
    re.VERBOSE,
)
"""Matches numbers as people write them and, like 15.00, as programs read them."""

_PLAIN = str.maketrans({"\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{RIGHT SINGLE QUOTATION MARK}": "'"} | dict.fromkeys("\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}\N{FIGURE SPACE}", " "))  # fmt: skip
"""Character of a written number -> the one that a keyboard has."""

_CODE = re.compile(r"0\d")
"""Beginning of codes that are not numbers, such as postal codes."""

_DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})(?!\S)|\d{4}-\d\d-\d\dT")
"""Beginning of a date, whatever follows, such as a time of day."""

_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")
"""Beginning of a date as the kind `time` reads it."""


_MARK = re.compile(
    r"""\s*|[?.]+|[-\N{EN DASH}\N{EM DASH}]+|\#\S*[A!?]        # the last by spreadsheets
      |N/?A|n/?a|<NA>|[Nn]\.[Aa]\.|NaN|nan|NaT|None
      |(?i:null|nil|\(?missing\)?|not\ available)
      |-9{2,}""",
    re.VERBOSE,
)
"""Matches texts that often stand for a missing value."""

_SENTINEL = re.compile(r"-9{2,}(\.9+)?|9{3,}(\.9+)?")
"""Matches numbers that often stand for a missing value where they lie far from all others."""

_COMMA = re.compile(r"([+-]?\d+),(\d{1,2})")
"""Matches a number with a decimal comma."""

_FEW = 3
"""Smallest number of equal cells that are taken for marks of missing values."""


def marks_of_missing(levels: Sequence[str]) -> list[str]:
    """Return the levels that often stand for a missing value.

    >>> marks_of_missing(["?", "Bonn", "n/a", "#N/A", "-999", " "]), marks_of_missing(["+", "-"])
    (['?', 'n/a', '#N/A', '-999', ' '], [])
    """
    return [level for level in levels if _MARK.fullmatch(level) and not (level == "-" and "+" in levels)]


def is_sentinel(number: float) -> bool:
    """Return whether a number such as -999 or 9999 often stands for a missing value."""
    return _SENTINEL.fullmatch(f"{number:.10g}") is not None


def doubtful_number(levels: Sequence[str]) -> str | None:
    """Return a level that is not a number although the others seem to be; None for a plain category.

    A whole number that float64 does not hold is one too, unless all levels are as large: these are identifiers.

    >>> doubtful_number(["n/a", "2.5", "3.5"]), doubtful_number(["1,5", "2,5"]), doubtful_number(["A", "B", "1"])
    ('n/a', '1,5', None)
    >>> doubtful_number(["1.234,50", "$15", "?"]), doubtful_number(["1.2.3", "1.10.2"])
    ('1.234,50', None)
    """
    others = [level for level in levels if not is_number(level)]
    if not others:
        large = [level for level in levels if abs(float(level)) >= EXACT]
        return large[0] if 0 < len(large) < len(levels) else None
    num_strange = sum(not _WRITTEN_NUMBER.fullmatch(level.translate(_PLAIN)) for level in others)
    is_doubtful = not num_strange or len(levels) - num_strange >= max(2, num_strange)
    return others[0] if is_doubtful else None


def seem_to_be(levels: Sequence[str]) -> Kind | None:
    """Return the kind that levels would have but for their notation or for texts that stand for a missing value; else None.

    Codes such as postal codes, which lose zeros as numbers, do not count as numbers.

    >>> [seem_to_be(each) for each in (["1.5", "-2"], ["1", "NA"], ["1,5", "2,5"], ["2026-11-23", "NA"], ["23/11/2026"])]
    ['number', 'number', 'number', 'time', 'time']
    >>> [seem_to_be(each) for each in (["1", "A"], ["NA"], ["01234", "10000"], ["2026-11-23", "never"], ["1.10.2"])]
    [None, None, None, None, None]
    """
    values = [level for level in levels if level not in MISSING_TEXTS]
    if values and all(map(_DATE.match, values)):
        return "time"
    if not values or any(map(_CODE.match, values)):
        return None
    return "number" if all(map(is_number, values)) or doubtful_number(values) is not None else None


def levels_alike(levels: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two levels that differ only in case or spaces, and so are probably one; None if there are none.

    >>> levels_alike(["Male", "f", "male "]), levels_alike(["New York", "Newark"])
    (('Male', 'male '), None)
    """
    first: dict[str, str] = {}
    for level in levels:
        other = first.setdefault(" ".join(level.split()).casefold(), level)
        if other != level:
            return other, level
    return None


def numbers_alike(levels: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two levels that are one number in two notations; None if there are none. Leading zeros count.

    >>> numbers_alike(["1", "1000", "1e3"]), numbers_alike(["2.5", "2,50"]), numbers_alike(["1", "01", "1a"])
    (('1000', '1e3'), ('2.5', '2,50'), None)
    """
    first: dict[Decimal, str] = {}
    for level in levels:
        plain = _COMMA.sub(r"\1.\2", level) if _COMMA.fullmatch(level) else level
        if is_number(plain) and not _CODE.match(plain.lstrip("+-")):
            other = first.setdefault(Decimal(plain), level)
            if other != level:
                return other, level
    return None


def is_number(text: str) -> bool:
    """Return whether a text is a finite number as programs write it."""
    try:
        # Python also reads 1_000 and the digits of other scripts.
        return "_" not in text and text.isascii() and bool(np.isfinite(float(text)))
    except ValueError:
        return False


# -- rejections and warnings --------------------------------------------------------------------------------------------


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
    is_iso = all(map(_ISO_DATE.match, levels))
    if kind == "time" or (kind == "number" and not is_text):
        missing = [level for level in levels if level in MISSING_TEXTS]
        shown = ", ".join(f"'{level}'" for level in levels[:4])
        warning = (
            f"{path}: '{name}' holds texts that seem to be {'dates' if kind == 'time' else 'numbers'} ({shown}) and is a category"
            f" with {len(levels)} levels; {'write them as 2026-11-23 and say' if kind == 'time' and not is_iso else 'say'} which it is:"
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
