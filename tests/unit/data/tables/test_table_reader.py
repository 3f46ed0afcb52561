"""Options that name columns, cells that do not fit their column, and files whose columns differ."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from bayesmesh.data.base import Dataset
from bayesmesh.data.sources.table import Options, Source
from bayesmesh.errors import DataError


def read(folder: Path, *tables: str | pa.Table, **options: Any) -> Dataset:
    """Return the dataset of one file for each table, CSV for a text and Parquet for others."""
    for number, table in enumerate(tables):
        if isinstance(table, str):
            (folder / f"rows-{number}.csv").write_text(table, encoding="utf-8")
        else:
            parquet.write_table(table, folder / f"rows-{number}.parquet")
    records = folder / "records"
    records.mkdir()
    source = Source(Options.model_validate({"files": str(folder / "rows-*"), **options}))
    source.fetch(records)
    return source.read(records)


def test_large_numbers_that_vary_little_are_standardised(tmp_path: Path) -> None:
    times = 1_700_000_000_000_000 + 37 * np.arange(20)
    found = read(tmp_path, "t\n" + "".join(f"{time}\n" for time in times), standardise=["t"])
    np.testing.assert_allclose(found.rows["t"][:], (times - times.mean()) / times.std(), atol=0.01)


@pytest.mark.parametrize(("value", "num_rows"), [("0.1", 3), ("1.1", 30), ("98.6", 1000)])
def test_a_constant_is_not_standardised_by_the_rounding_of_its_mean(tmp_path: Path, value: str, num_rows: int) -> None:
    with pytest.raises(DataError, match=f"'x' has the same value, {value}, in all rows"):
        read(tmp_path, "x\n" + f"{value}\n" * num_rows, standardise=["x"])


def test_a_column_that_varies_little_is_standardised(tmp_path: Path) -> None:
    dataset = read(tmp_path, "x\n10000000.0001\n10000000.0002\n", standardise=["x"])
    np.testing.assert_allclose(dataset.rows["x"][:], [-1, 1], rtol=1e-4)


def test_a_text_for_a_missing_value_is_one_in_a_pandas_category(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": pd.Categorical(["a", "unknown", "b"]), "y": [1.0, 2.0, 3.0]})
    dataset = read(tmp_path, pa.Table.from_pandas(frame), missing_values=["unknown"], missing="drop")
    assert dataset.variables["x"].levels == ("a", "b")
    assert dataset.rows["y"][:].tolist() == [1, 3]


DAYS = pa.table({"t": [datetime.date(2026, 11, 23)]})


@pytest.mark.parametrize(
    ("tables", "types", "said"),
    [
        ((pa.table({"t": [2019, 2020]}),), {"t": "time"}, "rows-0.parquet, row 1: 't' is not a time such as 2026-11-23 but '2019'"),
        ((DAYS, pa.table({"t": [20454, 3]})), {}, "rows-1.parquet, row 1: 't' is not a time such as 2026-11-23 but '20454'"),
    ],
)  # fmt: skip
def test_numbers_in_a_column_of_times_are_refused(
    tmp_path: Path, tables: tuple[pa.Table, ...], types: dict[str, str], said: str
) -> None:
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        read(tmp_path, *tables, types=types)
    assert "t: number" in caught.value.remedy


def test_types_and_levels_are_declared_by_patterns(tmp_path: Path) -> None:
    levels, types = {"q*": ["low", "high"]}, {"id_*": "category", "id_b": "integer"}
    dataset = read(tmp_path, "id_a,id_b,q1,q2\n5,6,low,high\n7,8,high,low\n", types=types, levels=levels)
    assert dataset.variables["id_a"].levels == ("5", "7")
    assert dataset.rows["id_b"].dtype == np.int64
    assert dataset.rows["q1"][:].tolist() == [0, 1]
    assert dataset.rows["q2"][:].tolist() == [1, 0]
    assert [dataset.variables[name].is_ordered for name in ("id_a", "q1", "q2")] == [False, True, True]
    assert sorted(dataset.ordered) == ["q1", "q2"]


@pytest.mark.parametrize(("twin", "said"), [("a", "a"), ("e\u0301", "\u00e9")])
def test_a_level_that_is_listed_twice_is_refused(tmp_path: Path, twin: str, said: str) -> None:
    with pytest.raises(DataError, match=f"key 'data.levels.q': '{said}' is listed twice"):
        read(tmp_path, "q\na\n", levels={"q": ["a", "b", "\u00e9", twin]})


def test_a_category_of_lists_is_refused_in_a_filter(tmp_path: Path) -> None:
    table = pa.table({"y": [1.0, 2.0], "x": [[1], [2]]})
    with pytest.raises(DataError, match="row 1: 'x' holds a value of type list") as caught:
        read(tmp_path, table, types={"x": "category"}, columns=["y"], rows="x == 'a'")
    assert "data.rows" in caught.value.remedy


INCOMES = "income,income_missing,town\n1,7,a\n,8,b\n3,9,\n"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"features": ["income", "income_missing"]},
        {"income": "income", "income_missing": "income_missing"},
        {"money": "income", "money_missing": "income_missing"},
    ],
)
def test_an_indicator_does_not_replace_a_column(tmp_path: Path, fields: dict[str, Any]) -> None:
    said = "key 'data.indicate_missing': the indicator of '(income|money)' would replace the column '(income|money)_missing'"
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path, INCOMES, indicate_missing=["income", "town"], fields=fields)
    assert "rename" in caught.value.remedy


def test_an_indicator_beside_a_column_of_another_name_is_kept(tmp_path: Path) -> None:
    fields = {"income": "income", "lost": "income_missing", "features": ["income", "town"]}
    dataset = read(tmp_path, INCOMES, indicate_missing=["income", "town"], fields=fields)
    assert dataset.rows["income_missing"][:].tolist() == [0, 1, 0]
    assert dataset.rows["lost"][:].tolist() == [7, 8, 9]
