"""Read a file of a table as blocks of columns, at most a few megabytes at a time.

Cells of text formats are texts without surrounding blanks, and `columns` decides their meaning: a reader that
guessed from its first block might fail, or guess differently, at a later one.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import unquote

from bayesmesh.data.fetching import LEAST_TEXT, check_size
from bayesmesh.data.tables.columns import is_text
from bayesmesh.errors import DataError, suggest

if TYPE_CHECKING:
    from pyarrow.csv import InvalidRow

Format = Literal["csv", "tsv", "parquet", "feather", "jsonl"]

TEXT_FORMATS: tuple[Format, ...] = ("csv", "tsv", "jsonl")
"""Formats whose cells are text."""

ENDINGS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet", ".feather": "feather",
    ".arrow": "feather", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip
"""Extension of a file -> its format."""

BLOCK_BYTES = 4 * 2**20
"""Size of a block of text in the file, in bytes."""

BLOCK_CELLS = 2**19
"""Number of cells of a block in other formats."""

MOST_TEXT = 2**20
"""Largest number of bytes of a cell."""

MOST_LINE = 2**24
"""Largest number of bytes of a line of JSON."""

MOST_SHOWN = 60
"""Number of characters of a broken row that a message quotes."""

_ARROW_ROW = re.compile(r"Row #(\d+): ")

_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Extension of compressed texts, which are decompressed as they are read -> form of compression."""

MOST_COLUMNS = 100_000
"""Largest number of columns of a table."""


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        first: number of the first row, counted from 1 below any header.
        cells: column -> Arrow array.
    """

    first: int
    cells: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()), ()))


_HEADER_BYTES = 2**16
"""Number of bytes of a file in which the end of its header is sought."""


class TableFile:
    """A file of a table.

    Args:
        path: the file.
        form: its format; None determines it from the extension.
        delimiter: delimiter between the cells of a CSV line; by default a comma, or a tab for TSV.

    Attributes:
        names: its columns, in their order, followed by the columns that stem from folders such as ``year=2020`` above it.
        keys: column -> its value in all rows of the file, for columns from such folders; None if the value is missing.
        written: the columns in the file itself.
        form: its format.

    Raises:
        DataError: the format is unknown, or the file is damaged, has no columns, or has a column twice.
    """

    def __init__(self, path: Path, form: Format | None = None, delimiter: str | None = None) -> None:
        self.path, self.form = path, form or _format_of(path)
        self.row_check = RowCheck()
        self._delimiter = delimiter or {"tsv": "\t"}.get(self.form, ",")
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: not a regular file, but a folder, a pipe or a device", "give the path of a table")
        with _explaining(self):
            if self.is_text:
                self._check_expansion()
                self._check_encoding()
            if self.form == "csv" and delimiter is None:
                self._check_delimiter()
            self.names = _NAMES[self.form](self)
        if not self.names:
            raise DataError(f"{path}: the file holds no columns", f"is it really {self.form}? name another `format`")
        self.keys = {key: value for key, value in _keys_of(path).items() if key not in self.names}
        self.written = list(self.names)
        self.names += self.keys
        if len(self.names) > MOST_COLUMNS:
            raise DataError(f"{path}: {len(self.names):,} columns", f"keep at most {MOST_COLUMNS:,}; arrays hold more")
        if twice := [name for name, count in Counter(self.names).items() if count > 1]:
            raise DataError(f"{path}: two columns are called '{twice[0]}'", "give every column a name of its own")

    def _check_expansion(self) -> None:
        """Reject a compressed text whose beginning expands as no table does."""
        import pyarrow as pa

        if form := COMPRESSED.get(self.path.suffix.lower()):
            with pa.OSFile(str(self.path)) as file, pa.CompressedInputStream(file, form) as stream:
                count = 0
                while count <= LEAST_TEXT and (part := stream.read(BLOCK_BYTES)):
                    count += len(part)
                check_size(self.path, "the text", count, file.tell(), least=LEAST_TEXT)

    def _check_encoding(self) -> None:
        """Refuse UTF-16 and UTF-32, recognised by a byte-order mark or zero bytes: read as UTF-8, they are other texts."""
        beginning = self.open_text().read(_HEADER_BYTES)
        if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in beginning:
            raise DataError(f"{self.path}: the file is not in UTF-8, but seems to be in UTF-16", "save it as UTF-8")

    def _check_delimiter(self) -> None:
        """Refuse a header without commas but with semicolons or tabs: it would be the name of a single column."""
        header = self.open_text().read(_HEADER_BYTES).splitlines()[:1]
        for byte, shown in ((b";", ";"), (b"\t", "\\t")):
            if header and byte in header[0] and b"," not in header[0]:
                raise DataError(
                    f"{self.path}: the header holds no comma, but '{shown}'",
                    f'write commas between the cells, or name what stands there, for all files:\n    data:\n      delimiter: "{shown}"',
                )

    @property
    def is_text(self) -> bool:
        """Whether its cells are texts."""
        return self.form in TEXT_FORMATS

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yield the rows of some columns in their order; cells of text formats are texts, or null.

        Raises:
            DataError: the file is damaged; the message names the row where that is known.
        """
        import pyarrow as pa

        first = 1
        # A column of the file gives the number of rows of a block, even if only columns from folders are requested.
        inside = [name for name in names if name not in self.keys] or self.written[:1]
        with _explaining(self):
            for cells in _BLOCKS[self.form](self, inside):
                count = len(cells[inside[0]])
                self._check_lengths(first, cells)
                keyed = {key: pa.array([self.keys[key]] * count, pa.string()) for key in self.keys if key in names}
                yield Block(first, {name: keyed[name] if name in keyed else cells[name] for name in names})
                first += count

    def _check_lengths(self, first: int, cells: Mapping[str, Any]) -> None:
        """Reject long texts, whose meaning would take minutes to decide."""
        import pyarrow.compute as pc

        for name, column in cells.items():
            texts = column.dictionary if hasattr(column, "dictionary") else column
            longest = pc.max(pc.binary_length(texts)).as_py() if is_text(texts.type) else 0
            if (longest or 0) > MOST_TEXT:
                where = f"{self.path}, rows {first:,} to {first + len(column) - 1:,}"
                raise DataError(f"{where}: '{name}' holds a text of {longest:,} bytes", f"leave the column out:\n    data:\n      columns: ['*', '-{name}']")  # fmt: skip

    def open_text(self) -> Any:
        """Return a stream of the decompressed bytes of a text."""
        import pyarrow as pa

        is_compressed = self.path.suffix.lower() in COMPRESSED
        return pa.input_stream(str(self.path), compression="detect" if is_compressed else None)

    def read_csv(self, names: Sequence[str] | None) -> Any:
        """Return a reader of the blocks of CSV or TSV: of all columns, with guessed types, or of some columns, as text."""
        import pyarrow as pa
        from pyarrow import csv

        types = None if names is None else dict.fromkeys(names, pa.string())
        # A new one, because each reader counts from the first row.
        self.row_check = RowCheck()
        return csv.open_csv(
            self.open_text(),
            read_options=csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=self.row_check
            ),
            convert_options=csv.ConvertOptions(
                column_types=types, include_columns=names, null_values=[], strings_can_be_null=False
            ),
        )


def _keys_of(path: Path) -> dict[str, str | None]:
    """Return column -> value from the innermost folders of a partitioned table.

    >>> _keys_of(Path("a=1/sales/year=2020/town=Bad%20Ems/part.parquet"))
    {'year': '2020', 'town': 'Bad Ems'}
    """
    folders = list(itertools.takewhile(lambda name: "=" in name, reversed(path.parent.parts)))
    pairs = (name.partition("=") for name in reversed(folders))
    return {unquote(key): None if value == _NO_VALUE else unquote(value) for key, _, value in pairs}


_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def _format_of(path: Path) -> Format:
    suffixes = [each.lower() for each in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    if suffixes and suffixes[-1] in _SPREADSHEETS:
        raise DataError(f"{path}: spreadsheets are not read", "save the sheet as CSV, and give that file")
    if not suffixes or suffixes[-1] not in ENDINGS:
        raise DataError(
            f"{path}: the format of the file is not known from its ending",
            f"give it one of the endings {', '.join(ENDINGS)}, or name the format in the key 'data.format', one of {', '.join(get_args(Format))}",
        )
    return ENDINGS[suffixes[-1]]


# -- comma-separated values ---------------------------------------------------------------------------------------------


class RowCheck:
    """Handler that Arrow calls for each row whose number of cells differs from the header's.

    Attributes:
        fault: the row at which reading ended, and what is wrong with it; empty if there is none.
        remedy: how to correct it.
    """

    def __init__(self) -> None:
        self.fault, self.remedy = "", ""
        self._blank: list[int] = []

    def __call__(self, row: InvalidRow) -> str:
        """Return the action for Arrow: skip a blank line, as it skips an empty one, or stop."""
        number = row.number or 0
        if not row.text.strip():
            self._blank.append(number)
            return "skip"
        shown = row.text if len(row.text) <= MOST_SHOWN else f"{row.text[:MOST_SHOWN]} ..."
        cells = "1 cell" if row.actual_columns == 1 else f"{row.actual_columns} cells"
        self.fault = f"row {self.row_of_table(number)}: {cells}, and the header has {row.expected_columns}: {shown!r}"
        if row.text.count('"') % 2 and row.actual_columns < row.expected_columns:
            self.remedy = "close the quote, or double a quote within a quoted text"
        else:
            self.remedy = "correct the line, or quote a cell that holds the delimiter"
        if row.actual_columns == row.expected_columns + 1:
            self.remedy += "; if every row begins with its name, as R writes it, begin the header with a name for these"
        if row.expected_columns == 1:
            self.remedy += "; leave out lines above the header, because the first line names the columns"
        return "error"

    def row_of_table(self, number: int) -> int:
        """Return a row's number below the header, from 1, as in other messages: Arrow counts the header and blank lines."""
        return number - 1 - sum(blank < number for blank in self._blank)

    def restate(self, said: str) -> str:
        """Return Arrow's message with the number of the row in the table.

        >>> RowCheck().restate("In CSV column #1: Row #3: invalid UTF8 data")
        'In CSV column #1: row 2: invalid UTF8 data'
        """
        return _ARROW_ROW.sub(lambda found: f"row {self.row_of_table(int(found[1]))}: ", said)


def _csv_names(file: TableFile) -> list[str]:
    return [str(name).strip() for name in file.read_csv(None).schema.names]


def _csv_blocks(file: TableFile, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    written = dict(zip(file.written, file.read_csv(None).schema.names, strict=True))
    for batch in file.read_csv([written[name] for name in names]):
        trimmed = {name: pc.utf8_trim_whitespace(batch.column(written[name])) for name in names}
        if len(file.written) == 1:
            # A blank line has as many cells as the header; an empty cell is written as "".
            (cells,) = trimmed.values()
            trimmed[names[0]] = cells.filter(pc.or_(pc.not_equal(cells, ""), pc.equal(batch.column(0), "")))
        yield trimmed
    _check_quotes(file)


def _check_quotes(file: TableFile) -> None:
    """Refuse a file with an odd number of quotes and a last row of several lines: a quote is not closed."""
    stream, count = file.open_text(), 0
    while part := stream.read(BLOCK_BYTES):
        count += part.count(b'"')
    # An inch sign within a cell is not a quote, and an unclosed quote extends over all further lines.
    if count % 2 == 0:
        return
    last = None
    for batch in file.read_csv(file.read_csv(None).schema.names):
        last = batch.slice(batch.num_rows - 1) if batch.num_rows else last
    if last is not None and any("\n" in str(cell).strip("\r\n") for column in last.columns for cell in column):
        raise DataError(
            f"{file.path}: a quote is not closed, so that the last row would have taken all lines behind it",
            "close the quote, or double a quote within a quoted text",
        )


# -- lines of JSON --------------------------------------------------------------------------------------------------------


def _json_rows(file: TableFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the content of every line; numbers stay as the texts in the file."""
    with io.BufferedReader(file.open_text()) as lines:
        for number in itertools.count(1):
            if not (line := lines.readline(MOST_LINE)):
                return
            if len(line) == MOST_LINE:
                raise DataError(f"{file.path}, line {number}: longer than {MOST_LINE:,} bytes", "write one row a line")
            if not line.strip():
                continue
            try:
                row = json.loads(
                    line.decode(), parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=without_twins
                )
            except UnicodeDecodeError as error:
                raise _not_utf8(file.path, f"line {number}") from error
            except (json.JSONDecodeError, RecursionError) as error:
                raise DataError(f"{file.path}, line {number}: not JSON: {error}", "write one object a line") from error
            except ValueError as error:
                raise DataError(f"{file.path}, line {number}: {error}", "write one value a column") from error
            if not isinstance(row, dict):
                raise DataError(f"{file.path}, line {number}: not an object", 'write lines such as {"x": 1.5}')
            yield number, row


def without_twins(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON.

    Raises:
        ValueError: it has a key twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)}' stands there twice")
    return found


def _json_names(file: TableFile) -> list[str]:
    # A key may be absent from some lines, so all lines are read.
    names: dict[str, None] = {}
    for _, row in _json_rows(file):
        names.update(dict.fromkeys(row))
        if len(names) > MOST_COLUMNS:
            break
    return list(names)


def _json_blocks(file: TableFile, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    size = max(1, BLOCK_CELLS // 8 // max(1, len(names)))
    rows: list[list[str | None]] = []

    def block() -> dict[str, Any]:
        columns = zip(*rows, strict=True) if rows else ((),) * len(names)
        return {name: pa.array(cells, pa.string()) for name, cells in zip(names, columns, strict=True)}

    for number, row in _json_rows(file):
        rows.append([_json_text(file, number, name, row.get(name)) for name in names])
        if len(rows) == size:
            yield block()
            rows.clear()
    if rows:
        yield block()


def _json_text(file: TableFile, number: int, name: str, value: object) -> str | None:
    match value:
        case None | str():
            return value if value is None else value.strip()
        case bool():
            return str(value).lower()
    raise DataError(
        f"{file.path}, line {number}: '{name}' holds {json.dumps(value)[:40]} instead of a number or a text",
        "write one value a column",
    )


# -- columnar formats -----------------------------------------------------------------------------------------------------


def _parquet_names(file: TableFile) -> list[str]:
    from pyarrow import parquet

    with parquet.ParquetFile(file.path) as table:
        cells = table.metadata.num_rows * table.metadata.num_columns
        groups = (table.metadata.row_group(i).total_byte_size for i in range(table.metadata.num_row_groups))
        check_size(file.path, "the table", max(8 * cells, sum(groups)), file.path.stat().st_size)
        return list(table.schema_arrow.names)


def _parquet_blocks(file: TableFile, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    from pyarrow import parquet

    size = max(1, BLOCK_CELLS // max(1, len(names)))
    with parquet.ParquetFile(file.path, memory_map=True) as table:
        for batch in table.iter_batches(batch_size=size, columns=list(names), use_threads=False):
            yield {name: batch.column(name) for name in names}


def _feather_names(file: TableFile) -> list[str]:
    import pyarrow as pa

    with pa.memory_map(str(file.path)) as source:
        names = list(pa.ipc.open_file(source).schema.names)
        # Without any column, nothing is decompressed.
        table = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=[]))
        cells = len(names) * sum(table.get_batch(i).num_rows for i in range(table.num_record_batches))
        check_size(file.path, "the table", 8 * cells, file.path.stat().st_size)
        return names


def _feather_blocks(file: TableFile, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    size = max(1, BLOCK_CELLS // max(1, len(names)))
    with pa.memory_map(str(file.path)) as source:
        table = pa.ipc.open_file(source)
        for number in range(table.num_record_batches):
            batch = table.get_batch(number)
            # Arrow trusts offsets that a damaged file holds.
            batch.validate(full=True)
            for start in range(0, batch.num_rows, size):
                part = batch.slice(start, size)
                yield {name: part.column(name) for name in names}


_NAMES: dict[Format, Callable[[TableFile], list[str]]] = {
    "csv": _csv_names, "tsv": _csv_names, "jsonl": _json_names, "parquet": _parquet_names, "feather": _feather_names,
}  # fmt: skip

_BLOCKS: dict[Format, Callable[[TableFile, Sequence[str]], Iterable[Mapping[str, Any]]]] = {
    "csv": _csv_blocks, "tsv": _csv_blocks, "jsonl": _json_blocks, "parquet": _parquet_blocks, "feather": _feather_blocks,
}  # fmt: skip


@contextlib.contextmanager
def _explaining(file: TableFile) -> Iterator[None]:
    """Convert an error from a reader into one that names the file."""
    import pyarrow as pa

    path = file.path
    try:
        yield
    except (pa.ArrowInvalid, OSError, MemoryError) as error:
        # Arrow sets no errno for errors in the content.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty", "write a header and rows into it") from error
        if fault := file.row_check.fault:
            raise DataError(f"{path}, {fault}", file.row_check.remedy) from error
        said = file.row_check.restate(" ".join(str(error).split()))
        if found := _NOT_UTF8.search(said):
            raise _not_utf8(path, f"{found[2] or 'a row'}, '{file.written[int(found[1])]}'") from error
        if "straddling object" in said or "cannot infer number of columns" in said:
            said = f"a line, or a text between quotes, is longer than {BLOCK_BYTES:,} bytes"
        said = said if len(said) <= 300 else f"{said[:300]} ..."
        raise DataError(
            f"{path}: not a whole table in the format {file.form}: {said}", "correct the file, or `format`"
        ) from error
    except UnicodeDecodeError as error:
        raise _not_utf8(path, "the header") from error


_NOT_UTF8 = re.compile(r"In CSV column #(\d+): (?:(row \d+): )?.*invalid UTF8")


def _not_utf8(path: Path, where: str) -> DataError:
    return DataError(
        f"{path}: the file is not in UTF-8, but seems to be in Latin-1 or Windows-1252 ({where})",
        "save it as UTF-8, for example with iconv -f windows-1252 -t utf-8",
    )


def same_columns(files: Iterable[TableFile]) -> list[str]:
    """Return the columns that all files have, in the order of the first.

    Raises:
        DataError: a file lacks a column, or has one that another file lacks.
    """
    first, *others = files
    for other in others:
        for name in sorted(set(first.names) ^ set(other.names)):
            lacks, has = (other, first) if name in first.names else (first, other)
            raise DataError(f"{lacks.path}: no column '{name}', which {has.path} has", suggest(name, lacks.names))
    return first.names
