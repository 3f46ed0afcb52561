"""Read and write CSV, with errors that name the file and the row."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bayesmesh.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_BLOCK_BYTES = 2**26
"""Bytes that are parsed at a time; no row may have more."""

_REMEDY = "delete the file and run the stage that writes it again"


class Row:
    """A row of a CSV file, read by column name and type.

    Attributes:
        cells: column -> text.
    """

    def __init__(self, path: Path, line: int, cells: dict[str, str]) -> None:
        self._path, self._line, self.cells = path, line, cells

    def text(self, column: str) -> str:
        """Return the text of a cell; empty if the file lacks the column."""
        return self.cells.get(column, "")

    def number(self, column: str) -> float:
        """Return a cell as a float; an empty cell is NaN.

        Raises:
            StoreError: the cell is not a number.
        """
        text = self.text(column).strip()
        if not text:
            return math.nan
        try:
            return float(text)
        except ValueError as error:
            message = f"{self._path}, line {self._line}, column '{column}': '{text}' is not a number"
            raise StoreError(message, _REMEDY) from error

    def count(self, column: str) -> int:
        """Return a cell as an integer; an empty cell is 0."""
        value = self.number(column)
        return int(value) if math.isfinite(value) else 0


def read_only_row(path: Path, required: Sequence[str]) -> Row:
    """Return the only row of a CSV file.

    Raises:
        StoreError: see `read_csv`; or the file has no row or several.
    """
    rows = read_csv(path, required)
    if len(rows) != 1:
        raise StoreError(f"{path}: {len(rows)} rows instead of one", _REMEDY)
    return rows[0]


def read_csv(path: Path, required: Sequence[str]) -> list[Row]:
    """Return the rows of a CSV file.

    Args:
        path: the file, UTF-8 with a header.
        required: columns that must exist.

    Raises:
        StoreError: no such file, not UTF-8, a column is missing, or a row and the header differ in length.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            header = next(reader, [])
            missing = [name for name in required if name not in header]
            if missing:
                raise StoreError(f"{path}: no column {', '.join(missing)}", _REMEDY)
            rows = []
            for cells in reader:
                if len(cells) != len(header):
                    raise StoreError(f"{path}, line {reader.line_num}: {len(cells)} cells, not {len(header)}", _REMEDY)
                rows.append(Row(path, reader.line_num, dict(zip(header, cells, strict=True))))
            return rows
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file", "run the stage that writes it") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path}: cannot be read as CSV: {error}", _REMEDY) from error


def read_columns(path: Path, *, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return columns of a CSV file by name: texts as objects, numbers as float64; an empty cell of a number is NaN.

    Raises:
        StoreError: no such file, not UTF-8, a column is missing, rows and header differ in length, a quotation mark is not closed,
            or a cell is not a number.
    """
    import pyarrow as pa  # a third of a second that modules which only write tables need not wait for
    import pyarrow.csv

    types = dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.float64())
    # Several threads would leave the number of the row out of messages.
    reading = pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    parsing = pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    converting = pa.csv.ConvertOptions(column_types=types, include_columns=[*types], null_values=["", "NaN"])
    try:
        content = path.read_bytes()
        if content.count(b'"') % 2:
            raise pa.ArrowInvalid("a quotation mark is not closed")
        table = pa.csv.read_csv(pa.BufferReader(content), reading, parsing, converting)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file", "run the stage that writes it") from error
    except (OSError, KeyError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path}: cannot be read as CSV: {error}", _REMEDY) from error
    return {name: table[name].to_numpy() for name in types}


def read_table(path: Path, *, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> pd.DataFrame:
    """Return columns of a CSV file by name, as text and as float64; an empty cell of a number is NaN.

    Raises:
        StoreError: see `read_columns`.
    """
    import pandas as pd  # half a second that a page without tables need not wait for

    columns = read_columns(path, texts=texts, numbers=numbers)
    return pd.DataFrame({name: pd.Series(values, dtype=values.dtype) for name, values in columns.items()})


def render_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a CSV document; None is an empty cell.

    >>> render_csv(["job", "seconds"], [["sample", 1.5], ["assemble", None]])
    'job,seconds\\nsample,1.5\\nassemble,\\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return out.getvalue()
