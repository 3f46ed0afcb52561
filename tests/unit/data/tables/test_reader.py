"""Options that name columns, cells that do not fit their column, and files whose columns differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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


def test_types_and_levels_are_declared_by_patterns(tmp_path: Path) -> None:
    levels, types = {"q*": ["low", "high"]}, {"id_*": "category", "id_b": "integer"}
    dataset = read(tmp_path, "id_a,id_b,q1,q2\n5,6,low,high\n7,8,high,low\n", types=types, levels=levels)
    assert dataset.variables["id_a"].levels == ("5", "7")
    assert dataset.rows["id_b"].dtype == np.int64
    assert dataset.rows["q1"][:].tolist() == [0, 1]
    assert dataset.rows["q2"][:].tolist() == [1, 0]
    assert [dataset.variables[name].is_ordered for name in ("id_a", "q1", "q2")] == [False, True, True]
    assert sorted(dataset.ordered) == ["q1", "q2"]


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
