"""Cells of Arrow become numbers or codes; the kind of an undeclared column is that of its first value."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bayesmesh.data.tables.checks import MISSING_TEXTS
from bayesmesh.data.tables.columns import (
    Levels,
    Misfit,
    choose_columns,
    infer_kind,
    to_numbers,
    without_missing,
)
from bayesmesh.errors import DataError

MARCH = datetime.datetime(1970, 3, 1, 12)


@pytest.mark.parametrize(
    ("cells", "is_text", "kind"),
    [
        (pa.array(["", "1e3"]), True, "category"),
        (pa.array([None, "-.5", "x"]), True, "number"),
        (pa.array([None, "x", "1"]), True, "category"),
        (pa.array([None, None], pa.string()), True, None),
        (pa.array([1, 2]), False, "number"),
        (pa.array(["1", "2"]), False, "category"),
        (pa.array([True]), False, "category"),
        (pa.array([1.5]), False, "number"),
        (pa.array([MARCH]), False, "time"),
        (pa.array(["a"]).dictionary_encode(), False, "category"),
    ],
)
def test_kinds(cells: Any, is_text: bool, kind: str | None) -> None:
    assert infer_kind(cells, is_text_format=is_text) == kind


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (pa.array(["1", None, "2.5"]), "number", [1, np.nan, 2.5]),
        (pa.array([1, None, 3], pa.int8()), "integer", [1, np.nan, 3]),
        (pa.array([MARCH]), "time", [59.5]),
        (pa.array(["1970-03-01", "1970-03-01 12:00:00"]), "time", [59, 59.5]),
        (pa.array(["1970-03-01T12:00:00Z", None, "1970-03-01", "1970-03-01 12:00"]), "time", [59.5, np.nan, 59, 59.5]),
        (pa.array(["1970-03-01T14:00:00+02:00", "1970-03-01 06:00:00-0600"]), "time", [59.5, 59.5]),
        (pa.array([MARCH.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))]), "time", [59.5 - 1 / 12]),
        (pa.array(["1", "2.5"], pa.string_view()), "number", [1, 2.5]),
    ],
)
def test_numbers(cells: Any, kind: Any, values: list[float]) -> None:
    np.testing.assert_array_equal(to_numbers(cells, kind), values)


def test_whole_numbers_beyond_float64_are_refused() -> None:
    with pytest.raises(Misfit) as caught:
        to_numbers(pa.array([1, 2**53 + 1]))
    assert caught.value.cell == 1


def test_levels_get_codes_in_their_final_order() -> None:
    levels = Levels()
    codes = [levels.encode(pa.array(cells)) for cells in (["b", None], ["a", "b"])]
    names, final = levels.ordered()
    assert names == ("a", "b")
    assert [[final[c] if c >= 0 else c for c in block] for block in codes] == [[1, -1], [0, 1]]


def test_texts_for_no_value_become_null() -> None:
    cells = pa.array(["NA", "x", None, ""])
    assert without_missing(cells, MISSING_TEXTS).to_pylist() == [None, "x", None, None]
    assert without_missing(cells, ("x",)).to_pylist() == ["NA", None, None, ""]


def test_columns_by_name_pattern_and_exclusion() -> None:
    names = ["id", "-y", "x[1]", "x1"]
    assert choose_columns(names, ["*", "-id"], "k") == ["-y", "x[1]", "x1"]
    assert choose_columns(names, ["-y", "x[1]"], "k") == ["-y", "x[1]"]
    with pytest.raises(DataError, match="no column 'xx'"):
        choose_columns(names, ["*", "-xx"], "k")
