"""Reading with errors that name the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.analyses.figures.documents import read_columns, read_csv, read_only_row
from bayesmesh.errors import StoreError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,c\n1,2\n", "no column b"),
        ("", "no column a, b"),
        ("a,b\n1\n", "line 2: 1 cells, not 2"),
        ('a,b\n"1,2\n', "cannot be read as CSV"),
    ],
)
def test_damaged_csv(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(StoreError, match=f"scores.csv.*{message}"):
        read_csv(path, ("a", "b"))


def test_a_file_that_is_missing_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"scores\.csv: no such file") as refused:
        read_csv(tmp_path / "scores.csv", ("a",))
    assert refused.value.remedy == "run the stage that writes it"


def test_a_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("a,title\n1,nan\n,NA\nx,null\n", encoding="utf-8")
    first, second, third = read_csv(path, ("a",))
    assert (first.number("a"), first.text("title")) == (1.0, "nan")
    assert second.number("a") != second.number("a")
    with pytest.raises(StoreError, match="line 4, column 'a': 'x' is not a number"):
        third.number("a")


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(StoreError, match=r"scores\.csv"):
        read_csv(path, ("a",))


@pytest.mark.parametrize("rows", ["", "1,2\n3,4\n"])
def test_another_number_of_rows_than_one_is_damage(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "sums.csv"
    path.write_text(f"a,b\n{rows}", encoding="utf-8")
    with pytest.raises(StoreError, match=f"sums.csv: {rows.count(',')} rows instead of one"):
        read_only_row(path, ("a", "b"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variable,mean\na,1\nb,one\n", "Row #3.*'one'"),
        ("variable,mean\na\n", "Row #2: Expected 2 columns, got 1"),
        ("variable\na\n", "'mean'"),
        ("", "Empty"),
        ('variable,mean\n"a,1\nb,2\n', "quotation mark is not closed"),
    ],
)
def test_a_damaged_table_is_named_with_its_row(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "summary.csv"
    path.write_text(text)
    with pytest.raises(StoreError, match=f"summary.csv: cannot be read as CSV: .*{said}"):
        read_columns(path, texts=("variable",), numbers=("mean",))


def test_texts_stay_as_they_are_and_numbers_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('a\n\nNA\n"x\ny"\n007\nTrue\n')
    assert read_columns(path, texts=("a",))["a"].tolist() == ["", "NA", "x\ny", "007", "True"]
    path.write_text("a,b\nNaN,\n,NaN\n1e-05,-inf\n")
    found = read_columns(path, texts=("a",), numbers=("b",))
    assert found["a"].tolist() == ["NaN", "", "1e-05"]
    np.testing.assert_array_equal(found["b"], [np.nan, np.nan, -np.inf])
