"""Decide the kinds of the columns of a table, and turn their cells into numbers: values, or codes of levels."""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesmesh.errors import DataError, suggest

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["number", "integer", "category", "time"]

NO_LEVEL = -1
"""Code of a missing cell of a category; a missing number is NaN."""

MOST_LEVELS = 2**20
"""Largest number of levels of a category; with more, the texts are probably unique to each row, which no model can use."""

_DAY_NS = 86_400 * 10**9

EXACT = 2**53
"""Above this number, float64 does not represent every integer."""


INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""Matches names of columns that hold numbers or names of rows, as pandas and R write them."""

_WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0+")
"""Matches a whole number that is written with a decimal point, as pandas and R write numbers beside an empty cell."""

_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
"""Matches a time of day with a time zone at the end of a text."""


class Misfit(Exception):
    """A cell does not fit the kind of its column.

    Attributes:
        cell: its index among the cells.
        text: its content.
    """

    def __init__(self, cell: int, text: str) -> None:
        super().__init__(text)
        self.cell, self.text = cell, text


def choose_columns(names: Sequence[str], patterns: Iterable[str], key: str) -> list[str]:
    """Return the names that the patterns choose, in the order of the patterns, each once; patterns match no `INDEX`.

    Args:
        names: all columns.
        patterns: names, patterns such as ``pixel_*``, and either with a leading ``-`` to leave columns out again.
        key: key of the configuration that holds the patterns, for messages.

    Raises:
        DataError: a pattern matches no column.

    >>> choose_columns(["id", "x1", "x2", "y"], ["y", "x*", "-x1"], "data.columns")
    ['y', 'x2']
    """
    chosen: dict[str, None] = {}
    for pattern in patterns:
        # The literal name of a column takes precedence over its reading as a pattern.
        is_out = pattern.startswith("-") and pattern not in names
        wanted = pattern[1:] if is_out else pattern
        found = [wanted] if wanted in names else [n for n in names if fnmatch.fnmatchcase(n, wanted) and not INDEX.fullmatch(n)]  # fmt: skip
        if not found:
            raise DataError(f"key '{key}': no column '{wanted}' in the table", suggest(wanted, names))
        for name in found:
            if is_out:
                chosen.pop(name, None)
            else:
                chosen[name] = None
    return list(chosen)


def declared_columns[T](names: Sequence[str], declared: Mapping[str, T], key: str) -> dict[str, T]:
    """Return column -> its declaration; a column's name takes precedence over the patterns that match it.

    Args:
        names: all columns.
        declared: name or pattern -> what it declares.
        key: key of the configuration that holds the declarations, for messages.

    Raises:
        DataError: a pattern matches no column, or two patterns declare a column differently.

    >>> declared_columns(["id_a", "id_b", "y"], {"id_*": "category", "id_b": "number"}, "data.types")
    {'id_a': 'category', 'id_b': 'number'}
    """
    pattern_of: dict[str, str] = {}
    known = frozenset(names)
    for pattern in declared:
        found = [pattern] if pattern in known else [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise DataError(f"key '{key}': no column '{pattern}' in the table", suggest(pattern, names))
        for name in found:
            other = pattern_of.get(name, pattern)
            if name not in declared and declared[other] != declared[pattern]:
                raise DataError(
                    f"key '{key}': '{other}' and '{pattern}' declare '{name}' differently",
                    f"declare '{name}' by its name",
                )
            pattern_of[name] = name if name in declared else pattern
    return {name: declared[pattern_of[name]] for name in names if name in pattern_of}


def infer_kind(cells: pa.Array, *, is_text_format: bool) -> Kind | None:
    """Return the kind of a column without a declared one; None if no cell holds a value.

    In a text format, the first cell that holds a value decides whether the column is numeric.

    Args:
        cells: an Arrow array.
        is_text_format: whether numbers are stored as text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if cells.null_count == len(cells):
        return None
    if pa.types.is_temporal(cells.type):
        return "time"
    if is_text_format:
        try:
            to_numbers(pc.drop_null(cells).slice(0, 1))
        except Misfit:
            return "category"
        return "number"
    is_number = any(of(cells.type) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
    return "number" if is_number else "category"


def is_missing(values: np.ndarray) -> np.ndarray:
    """Return which numbers are NaN, or which codes mark cells without a value."""
    return np.isnan(values) if values.dtype.kind == "f" else values == NO_LEVEL


def without_missing(cells: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return cells with null in place of the texts that stand for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if missing and pa.types.is_dictionary(cells.type) and is_text(cells.type.value_type):
        # Arrow casts no dictionary of views, in which Polars writes texts.
        texts = cells.dictionary.cast(pa.string())
        is_gone = pc.is_in(texts, value_set=pa.array(missing, pa.string())).take(cells.indices)
        kept = pc.if_else(is_gone, pa.scalar(None, cells.indices.type), cells.indices)
        return pa.DictionaryArray.from_arrays(kept, texts, ordered=cells.type.ordered)
    if not missing or not is_text(cells.type):
        return cells
    # Arrow compares no views, in which Polars writes texts.
    cells = cells.cast(pa.string()) if pa.types.is_string_view(cells.type) else cells
    return pc.if_else(pc.is_in(cells, value_set=pa.array(missing, cells.type)), pa.scalar(None, cells.type), cells)


def is_text(kind: pa.DataType) -> bool:
    """Return whether cells are texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def to_numbers(cells: pa.Array, kind: Kind = "number") -> np.ndarray:
    """Return float64 numbers, NaN where a cell is null; times are days since the start of 1970, UTC.

    Args:
        cells: an Arrow array.
        kind: ``number``, ``integer`` or ``time``.

    Raises:
        Misfit: a cell is not a number or, depending on the kind, not an integer or not a time.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if is_text(cells.type):
        cells = cells.cast(pa.string())
    if kind == "time":
        _refuse_numbers(cells)
    convert = _days if kind == "time" else lambda cells: cells.cast(pa.float64())
    try:
        numbers = convert(cells)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        index = _first_refused(cells, convert)
        raise Misfit(index, str(cells[index])) from error
    values = np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)
    with np.errstate(invalid="ignore"):
        is_broken = (values != np.floor(values)) & ~np.isnan(values)
    if kind == "integer" and is_broken.any():
        cell = int(np.argmax(is_broken))
        raise Misfit(cell, str(cells[cell]))
    if kind != "time":
        _check_exact(cells, values)
    return values


def first_padded(cells: pa.Array) -> str | None:
    """Return the first text of a column that begins with a zero before another digit, such as a postal code; else None."""
    import pyarrow.compute as pc

    if not is_text(cells.type):
        return None
    at = pc.index(pc.match_substring_regex(cells, r"^[+-]?0\d"), True).as_py()
    return None if at < 0 else str(cells[at])


def _days(cells: pa.Array) -> pa.Array:
    """Return days since the start of 1970, UTC, float64; texts without a time zone are in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain, in_utc = pa.timestamp("ns"), pa.timestamp("ns", "UTC")
    if pa.types.is_string(cells.type):
        # Arrow converts texts with a zone to moments with a zone alone, and others to moments without.
        is_zoned = pc.match_substring_regex(cells, _ZONE)
        none = pa.scalar(None, cells.type)
        zoned, local = pc.if_else(is_zoned, cells, none), pc.if_else(is_zoned, none, cells)
        moments = pc.coalesce(local.cast(plain), zoned.cast(in_utc).cast(plain))
    else:
        moments = cells.cast(plain)
    return pc.divide(moments.cast(pa.int64()).cast(pa.float64(), safe=False), float(_DAY_NS))


def _refuse_numbers(cells: pa.Array) -> None:
    """Refuse numbers for times: Arrow would count nanoseconds, whatever they count."""
    import pyarrow as pa

    if pa.types.is_temporal(cells.type) or pa.types.is_null(cells.type) or is_text(cells.type):
        return
    if len(present := np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))):
        raise Misfit(int(present[0]), str(cells[int(present[0])]))


def _check_exact(cells: pa.Array, values: np.ndarray) -> None:
    """Refuse digits that float64 cannot represent exactly: two identifiers could become one. Arrow refuses such integers."""
    for cell in map(int, np.flatnonzero(np.abs(values) >= EXACT)):
        text = str(cells[cell]).lstrip("+-")
        if text.isdecimal() and int(text) != int(abs(values[cell])):
            raise Misfit(cell, str(cells[cell]))


def _first_refused(cells: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> int:
    """Return the index of the first cell that cannot be converted, by bisection."""
    import pyarrow as pa

    def is_refused(part: pa.Array) -> bool:
        try:
            convert(part)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return True
        return False

    start, count = 0, len(cells)
    while count > 1:
        half = count // 2
        if is_refused(cells.slice(start, half)):
            count = half
        else:
            start, count = start + half, count - half
    return start


class Levels:
    """The levels of a category, in the order of their first appearance.

    Args:
        declared: all levels, in their final order; None to find them in the cells.
    """

    def __init__(self, declared: Sequence[str] | None = None) -> None:
        self._codes = {level_of(level): code for code, level in enumerate(declared or ())}
        self._is_open = declared is None

    def encode(self, cells: pa.Array) -> np.ndarray:
        """Return the codes of cells, int32, `NO_LEVEL` where a cell is null.

        Raises:
            Misfit: a cell is not among the declared levels, or there are more than `MOST_LEVELS`.
        """
        import pyarrow as pa

        if pa.types.is_floating(cells.type):
            cells = _texts_of_floats(cells)
        try:
            encoded = cells.cast(pa.string()).dictionary_encode()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Misfit(
                _first_refused(cells, lambda part: part.cast(pa.string())), f"a value of type {cells.type}"
            ) from error
        texts = [*map(level_of, encoded.dictionary.to_pylist())]
        if self._is_open:
            for text in texts:
                self._codes.setdefault(text, len(self._codes))
        table = np.array([self._codes.get(text, -2) for text in texts] + [NO_LEVEL], np.int32)
        indices = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        codes = table[indices]
        if (codes == -2).any() or len(self._codes) > MOST_LEVELS:
            cell = int(np.argmax(codes == -2))
            raise Misfit(cell, texts[indices[cell]])
        return codes

    def found(self) -> tuple[str, ...]:
        """Return the levels so far, in the order of their codes."""
        return tuple(self._codes)

    def ordered(self) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the levels in their final order, and the final code for each code so far.

        Numeric levels are sorted as numbers, others by their characters; declared ones keep their order.

        >>> import pyarrow as pa
        >>> levels = Levels()
        >>> levels.encode(pa.array(["10", "9", None, "10"])).tolist()
        [0, 1, -1, 0]
        >>> levels.ordered()
        (('9', '10'), array([1, 0], dtype=int32))
        """
        names = list(self._codes)
        order = sorted(names, key=_number_or_text(names)) if self._is_open else names
        final = {name: code for code, name in enumerate(order)}
        return tuple(order), np.array([final[name] for name in names], np.int32)


def level_of(text: str) -> str:
    """Return the level that a text stands for, so that texts that look alike, or are one whole number, are one level.

    Accented letters become single characters, and whole numbers lose the zeros after a decimal point.

    >>> level_of("a\u0301") == "\u00e1", level_of("1.0"), level_of("01.0"), level_of("1.10")
    (True, '1', '01.0', '1.10')
    """
    return _WHOLE.sub(r"\1", text) if _WHOLE.fullmatch(text) else unicodedata.normalize("NFC", text)


def _number_or_text(names: Sequence[str]) -> Callable[[str], tuple[float, str]] | None:
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return None
    return (lambda name: (numbers[name], name)) if np.isfinite([*numbers.values()]).all() else None


def _texts_of_floats(cells: pa.Array) -> pa.Array:
    """Return whole numbers without a point, as they would be written by hand, and null for NaN."""
    import pyarrow as pa

    values = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
    texts = [
        None if np.isnan(v) else str(int(v)) if v == np.floor(v) and abs(v) < 2**53 else repr(float(v)) for v in values
    ]
    return pa.array(texts, pa.string())
