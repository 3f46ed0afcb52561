"""Every format gives the same cells, in blocks, and says which file is damaged."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bayesmesh.data.tables import formats
from bayesmesh.data.tables.formats import TableFile
from bayesmesh.errors import DataError

FRAME = pd.DataFrame({"x": [1.5, 2.5, 3.5], "town": ["Bonn", "Aachen, north", 'the "old" one']})


def write(folder: Path, ending: str) -> Path:
    path = folder / f"towns{ending}"
    match ending:
        case ".parquet":
            FRAME.to_parquet(path)
        case ".feather":
            FRAME.to_feather(path)
        case ".jsonl":
            FRAME.to_json(path, orient="records", lines=True)
        case ".tsv":
            FRAME.to_csv(path, index=False, sep="\t")
        case _:
            FRAME.to_csv(path, index=False)
    return path


def cells(file: TableFile) -> dict[str, list[Any]]:
    blocks = list(file.blocks(file.names))
    return {name: [cell for block in blocks for cell in block.cells[name].to_pylist()] for name in file.names}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".jsonl", ".parquet", ".feather"])
def test_every_format_has_the_same_cells(tmp_path: Path, ending: str) -> None:
    file = TableFile(write(tmp_path, ending))
    numbers = ["1.5", "2.5", "3.5"] if file.is_text else [1.5, 2.5, 3.5]
    assert cells(file) == {"x": numbers, "town": FRAME["town"].tolist()}


def test_a_delimiter_and_line_breaks_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "towns.csv"
    path.write_text('a;b\n1;"two\nlines"\n', encoding="utf-8")
    assert cells(TableFile(path, delimiter=";")) == {"a": ["1"], "b": ["two\nlines"]}


def test_a_broken_row_in_a_later_block_is_numbered_like_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "many.csv"
    path.write_text("x,y\n" + "1,2\n  \n" * 99 + '1,"2\n3"\n1,2,3\n', encoding="utf-8")
    monkeypatch.setattr(formats, "BLOCK_BYTES", 64)
    with pytest.raises(DataError, match="row 101: 3 cells"):
        cells(TableFile(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"a,b\n1\n", "x.csv, row 1: 1 cell, and the header has 2: '1'"),
        ("x.csv", b"a,b\n  \n1,2\n\n1,2,3\n", "x.csv, row 2: 3 cells, and the header has 2: '1,2,3'"),
        ("x.csv", b"a\n\xff\xfe\n", r"x.csv: the file is not in UTF-8, but .*Windows-1252 \(row 1, 'a'\)"),
        ("x.csv", "a,ö\n1,2\n".encode("latin-1"), r"x.csv: .* not in UTF-8, but .*Latin-1.* \(the header\)"),
        ("x.csv.gz", gzip.compress("a,b\n\n1,2\n1,ö\n".encode("latin-1"), mtime=0), r"Latin-1.* \(row 2, 'b'\)"),
        ("x.csv", "a,b\n1,2\n".encode("utf-16"), "x.csv: the file is not in UTF-8, but seems to be in UTF-16"),
        ("x.tsv", "a\tb\n1\t2\n".encode("utf-16-le"), "x.tsv: the file is not in UTF-8"),
        ("x.parquet", b"PAR1 and nothing else", "x.parquet: not a whole table in the format parquet"),
        ("x.feather", b"nothing", "x.feather: not a whole table in the format feather"),
        ("x.jsonl", b'{"a": 1}\n{"a": \n', "x.jsonl, line 2: not JSON"),
        ("x.jsonl", b"[1]\n", "x.jsonl, line 1: not an object"),
        ("x.jsonl", b'{"a": [1]}\n', r"x.jsonl, line 1: 'a' holds \[\"1\"\] instead"),
        ("x.jsonl", b'{"a": "\xff"}\n', r"x.jsonl: .* not in UTF-8, but .*Latin-1.* \(line 1\)"),
        ("x.jsonl", b"[" * 100_000, "x.jsonl, line 1: not JSON"),
        ("x.jsonl", b" " * 2**24, "x.jsonl, line 1: longer than 16,777,216 bytes"),
        ("x.csv.gz", gzip.compress(b"a\n1\n", mtime=0)[:-4], "x.csv.gz: not a whole table"),
        ("x.XLSX", b"PK", "x.XLSX: spreadsheets are not read"),
        ("x.json", b"{}", "x.json: the format of the file is not known"),
    ],
)
def test_damage_names_the_file(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        cells(TableFile(tmp_path / name))
