"""The source `table`: fields named after columns, their kinds, and refusals that name file, row or key and a remedy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesmesh.data.base import Dataset, Variable
from bayesmesh.data.sources.table import Options, Source
from bayesmesh.errors import DataError

TOWNS = "price,rooms,town\n1.5,2,Bonn\n2.5,3,Aachen\n4.5,3,Bonn\n"


def read(folder: Path, text: str = TOWNS, name: str = "towns.csv", **options: Any) -> Dataset:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    records = folder / "records"
    records.mkdir()
    source = Source(Options.model_validate({"files": str(path), **options}))
    source.fetch(records)
    return source.read(records)


def test_columns_are_fields_with_kinds_and_levels(tmp_path: Path) -> None:
    dataset = read(tmp_path)
    np.testing.assert_array_equal(dataset.rows["price"][:], [1.5, 2.5, 4.5])
    np.testing.assert_array_equal(dataset.rows["town"][:], [1, 0, 1])
    assert dataset.rows["town"].dtype == np.int32
    assert dataset.variables == {
        "price": Variable("number"),
        "rooms": Variable("number"),
        "town": Variable("category", levels=("Aachen", "Bonn")),
    }
    assert dataset.declared_counts == {"rows": 3}


def test_columns_are_chosen_and_their_kinds_declared(tmp_path: Path) -> None:
    types, levels = {"price": "integer", "rooms": "category"}, {"rooms": ["3", "2", "1"]}
    text = TOWNS.replace(".5", "")
    dataset = read(tmp_path, text, columns=["*", "-town"], types=types, levels=levels)
    assert set(dataset.rows) == {"price", "rooms"}
    assert dataset.rows["price"][:].tolist() == [1, 2, 4]
    assert dataset.rows["price"].dtype == np.int64
    assert dataset.rows["rooms"][:].tolist() == [1, 0, 0]
    assert dataset.variables["rooms"].levels == ("3", "2", "1")


def test_standardised_columns_keep_their_mean_and_scale(tmp_path: Path) -> None:
    dataset = read(tmp_path, standardise=["pri*"])
    about, values = dataset.variables["price"], dataset.rows["price"][:]
    np.testing.assert_allclose([values.mean(), values.std()], [0, 1], atol=1e-12)
    np.testing.assert_allclose(values * about.scale + about.mean, [1.5, 2.5, 4.5])
    np.testing.assert_allclose(dataset.rows["rooms"][:], [2, 3, 3])


@pytest.mark.parametrize("columns", [["zulu", "alpha", "mike"], ["alpha", "mike", "zulu"]])
def test_values_stay_with_their_columns_whatever_the_order(tmp_path: Path, columns: list[str]) -> None:
    dataset = read(tmp_path, "zulu,mike,alpha\n1,2,3\n4,5,6\n", columns=columns)
    assert {name: values[:].tolist() for name, values in dataset.rows.items()} == {
        "zulu": [1, 4],
        "mike": [2, 5],
        "alpha": [3, 6],
    }


def test_rows_that_lack_a_value_are_dropped_only_where_asked_for(tmp_path: Path) -> None:
    dataset = read(tmp_path, TOWNS.replace("2.5", "NA"), missing="drop")
    assert dataset.rows["price"][:].tolist() == [1.5, 4.5]
    assert dataset.variables["town"].levels == ("Aachen", "Bonn")


GAPS = "x,town,y\n1,a,1\nNA,b,2\n3,NA,3\n5,b,NA\n"


def test_missing_values_may_be_indicated(tmp_path: Path) -> None:
    dataset = read(tmp_path, GAPS, indicate_missing=["x", "town"], missing="drop", standardise=["x"])
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(dataset.rows["x"][:], (x - 2))
    assert dataset.rows["x_missing"][:].tolist() == [0, 1, 0]
    assert dataset.rows["town"][:].tolist() == [0, 1, 2]
    assert dataset.variables["town"].levels == ("a", "b", "(missing)")
    assert set(dataset.rows) == {"x", "x_missing", "town", "y"}
    assert dataset.facts["rows_incomplete"] == 1
    assert dataset.facts["missing values of x"] == 1


def test_rows_are_filtered_before_their_cells_are_looked_at(tmp_path: Path) -> None:
    text = TOWNS + "broken,3,Celle\n,9,Bonn\n"
    dataset = read(tmp_path, text, rows="town in ['Aachen', 'Bonn'] and rooms < 9")
    assert dataset.rows["price"][:].tolist() == [1.5, 2.5, 4.5]
    assert dataset.variables["town"].levels == ("Aachen", "Bonn")
    assert dataset.facts["rows_not_chosen"] == 2


def test_a_filter_may_read_columns_that_are_not_kept(tmp_path: Path) -> None:
    dataset = read(tmp_path, columns=["price"], rows="town == 'Bonn'")
    assert dataset.rows["price"][:].tolist() == [1.5, 4.5]
    assert set(dataset.rows) == {"price"}


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "feather"])
def test_every_format_and_any_number_of_files_give_the_same_data(tmp_path: Path, ending: str) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"x": rng.standard_normal(999), "n": rng.integers(0, 5, 999), "g": rng.choice(["b", "a"], 999)}
    )
    write = {
        "csv": lambda f, p: f.to_csv(p, index=False), "tsv": lambda f, p: f.to_csv(p, index=False, sep="\t"),
        "jsonl": lambda f, p: p.write_text("".join(json.dumps(row) + "\n" for row in f.to_dict("records"))),
        "parquet": lambda f, p: f.to_parquet(p), "feather": lambda f, p: f.to_feather(p),
    }[ending]  # fmt: skip
    for number, part in enumerate(np.array_split(np.arange(999), 3)):
        write(frame.iloc[part].reset_index(drop=True), tmp_path / f"part-{number}.{ending}")
    (tmp_path / "records").mkdir()
    source = Source(Options(files=(str(tmp_path / f"part-*.{ending}"),), types={"n": "integer"}, standardise=("x",)))
    source.fetch(tmp_path / "records")
    dataset = source.read(tmp_path / "records")
    np.testing.assert_array_equal(
        dataset.rows["x"][:], (frame["x"] - dataset.variables["x"].mean) / dataset.variables["x"].scale
    )
    np.testing.assert_array_equal(dataset.rows["n"][:], frame["n"])
    np.testing.assert_array_equal(dataset.rows["g"][:], (frame["g"] == "b").to_numpy(int))
    np.testing.assert_allclose(dataset.variables["x"].mean, frame["x"].mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "options", "message", "remedy"),
    [
        (TOWNS.replace("2.5", ""), {}, r"towns.csv, row 2: 'price' holds no value", "missing: drop"),
        (TOWNS.replace("2.5", "2,5"), {}, "towns.csv, row 2: 4 cells, and the header has 3", "correct the line"),
        (TOWNS.replace("2.5", "two"), {}, r"row 2: 'price' is not a number but 'two'", "price: category"),
        (TOWNS.replace("2.5", "inf"), {}, "row 2: 'price' is infinite", "correct the cell"),
        (TOWNS, {"types": {"price": "integer"}}, "row 1: 'price' is not a whole number but '1.5'", "data.missing_values"),
        (TOWNS, {"types": {"town": "time"}}, "row 1: 'town' is not a time such as 2026-11-23 but 'Bonn'", "correct"),
        (TOWNS, {"levels": {"town": ["Bonn"]}}, "row 2: 'town' is 'Aachen', which is not among", "data.levels.town"),
        (TOWNS, {"columns": ["prise"]}, "key 'data.columns': no column 'prise'", "did you mean 'price'"),
        (TOWNS, {"types": {"prise": "number"}}, "key 'data.types': no column 'prise'", "did you mean 'price'"),
        (TOWNS, {"standardise": ["town"]}, "key 'data.standardise': 'town' is a category", "leave it out"),
        ("x\n3\n3\n", {"standardise": ["x"]}, "'x' has the same value, 3, in all rows", "leave it out"),
        ("x,x\n1,2\n", {}, "towns.csv: two columns are called 'x'", "name of its own"),
        ("", {}, "towns.csv: the file is empty", "header"),
        (TOWNS.replace(",", ";"), {}, "towns.csv: the header holds no comma, but ';'", 'delimiter: ";"'),
        ("x\ty\n1\t2\n", {}, r"towns.csv: the header holds no comma, but '\\t'", r'delimiter: "\t"'),
        ("x,y\n", {}, "towns.csv: the file holds no rows", "data.files"),
        ("x,y\n1,\n2,\n", {}, "column 'y' holds no value", "-y"),
        ("x\nNA\n1\nNA\n", {}, "row 1: 'x' holds no value", "missing: drop"),
        ("x\nNA\n1\nNA\n", {"missing": "drop", "rows": "x > 1"}, "no row is left of 3: 3 by the key 'data.rows'", "data.rows"),
        (TOWNS, {"rows": "prise > 1"}, "key 'data.rows': prise > 1: no column 'prise'", "did you mean 'price'"),
        (TOWNS, {"rows": "town > 1"}, "key 'data.rows': town > 1: a category is compared", "between quotes"),
        (TOWNS, {"fields": {"y": "pri*"}}, r"key 'data.fields.y': no column 'pri\*'", "write a list"),
        (TOWNS, {"fields": {"y": "prise"}}, "key 'data.fields.y': no column 'prise'", "did you mean"),
        (TOWNS, {"fields": {"y": []}}, "key 'data.fields.y': no column is left", "at least one"),
        ("a/b\n1\n", {}, "column 'a/b' cannot be the name of a field", "name: 'a/b'"),
        ("zarr.json\n1\n", {}, "column 'zarr.json' cannot be the name of a field", "leave it out"),
        (",x\n1,2\n", {"columns": [""]}, "column '' cannot be the name of a field", "leave it out"),
        (TOWNS, {"indicate_missing": ["prise"]}, "key 'data.indicate_missing': no column 'prise'", "did you mean"),
        ("x\n1\nNA\n", {"indicate_missing": ["x"], "standardise": ["x"]}, "'x' has the same value, 1, in all rows", "leave"),
    ],
)  # fmt: skip
def test_refusals_name_the_place_and_a_remedy(
    tmp_path: Path, text: str, options: dict[str, Any], message: str, remedy: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, text, **options)
    assert remedy in caught.value.remedy


def test_a_missing_file_is_named_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "houses.csv").write_text(TOWNS, encoding="utf-8")
    with pytest.raises(DataError, match=r"key 'data\.files': .*house\.csv: no such file") as caught:
        Source(Options(files=(str(tmp_path / "house.csv"),))).fetch(tmp_path)
    assert "houses.csv" in caught.value.remedy


RATES = "deaths,years,copies,risk,town\n1,2.5,1,0.1,a\n0,3,0,0.2,b\n"


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (RATES, {"weights": "copy"}, "key 'data.weights': no column 'copy'"),
        (RATES, {"weights": "town"}, "key 'data.weights': 'town' is a category"),
        (RATES, {"offset": "risk", "standardise": ["risk"]}, "key 'data.offset': 'risk' is also in 'standardise'"),
        (RATES, {"exposure": "years", "fields": {"y": "deaths"}}, "key 'data.exposure': 'years' is not a field"),
        (RATES, {"exposure": "deaths"}, "towns.csv, row 2: 'deaths' is 0, and exposures are numbers greater than 0"),
        (
            RATES.replace(",0,0.2", ",-1,0.2"),
            {"weights": "copies"},
            "row 2: 'copies' is -1, and weights are numbers that are 0 or greater",
        ),
    ],
)
def test_a_role_that_does_not_fit_is_refused(tmp_path: Path, text: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=re.escape(says)) as caught:
        read(tmp_path, text, **options)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("x,y\nn/a,1\n2.5,2\n3.5,3\n", {}, "'x' would be a category, because 'n/a' is not a number"),
        ('x,y\n"1,500",1\n900,2\n', {}, "'x' would be a category, because '1,500' is not a number"),
        ("x,y\n5%,1\n6%,2\n", {}, "because '5%' is not a number"),
        ("x,y\nMale,1\nf,2\nmale,3\n", {}, "'Male' and 'male' would be two levels of 'x'"),
        ("x,y\nNew York,1\nf,2\nNew  York,3\n", {}, "'New  York' and 'New York' would be two levels of 'x'"),
        ("id\n1\n9007199254740993\n", {}, "row 2: 'id' is 9007199254740993, a whole number with more digits"),
        ("id\n9007199254740993\n1\n", {"types": {"id": "integer"}}, "row 1: 'id' is 9007199254740993, a whole"),
        ('x,t\n1,"abc\n2,d\n3,e\n', {}, "a quote is not closed"),
        ('x,t\n1,"abc\n2,d\n3,e\n', {"columns": ["x"]}, "a quote is not closed"),
    ],
)
def test_cells_that_would_be_read_as_something_else_are_refused(
    tmp_path: Path, text: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=re.escape(said)):
        read(tmp_path, text, **options)


def test_what_is_declared_or_plain_is_read_as_it_is(tmp_path: Path) -> None:
    text = 'x,size,t\nn/a,"5"" pipe",a\u0301\n2.5,4,\u00e1\n3.5,"a\nb",b\n'
    dataset = read(tmp_path, text, types={"x": "category"})
    assert dataset.variables["x"].levels == ("2.5", "3.5", "n/a")
    assert dataset.variables["size"].levels == ("4", '5" pipe', "a\nb")
    (tmp_path / "cases").mkdir()
    assert read(tmp_path / "cases", "x\na\nA\n", types={"x": "category"}).variables["x"].levels == ("A", "a")
    # The same letter, written in two ways.
    assert dataset.rows["t"][:].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("day", "formula_names", "asked"),
    [("2026-11-23", "day", "; say which it is: types: {day: time}"), ("23/11/2026", "day", "; write them as 2026-11-23 and say"), ("2026-11-23", "y", None)],
)  # fmt: skip
def test_only_dates_that_are_used_are_asked_about(
    tmp_path: Path, day: str, formula_names: str, asked: str | None
) -> None:
    warnings = read(tmp_path, f"y,day\n1,{day}\n2,{day}\n", needed=(formula_names,)).facts.get("warnings", [])
    assert [asked in each for each in warnings] == ([True] if asked else [])
