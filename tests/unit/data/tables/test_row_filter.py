"""The language of row filters: what it computes, what it does with missing values, and that nothing else gets through."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.data.tables.row_filter import RowFilter, Texts, Times
from bayesmesh.errors import DataError

COLUMNS = {
    "x": np.array([1.0, 2.0, np.nan, 4.0]),
    "y": np.array([1.0, 1.0, 5.0, -1.0]),
    "town": Texts(np.array([0, 1, 0, -1]), ("Bonn", "Aachen")),
    "my col": np.array([0.0, 0.0, 1.0, 1.0]),
    "day": Times(np.array([0.0, 1.5, np.nan, 3.0])),
    "missing": np.array([1.0, 2.0, 3.0, 3.0]),
    "\u00b5g": np.array([1.0, 2.0, 1.0, 1.0]),
}


def keep(text: str) -> list[int]:
    chosen = RowFilter(text, list(COLUMNS))
    return np.flatnonzero(chosen({name: COLUMNS[name] for name in chosen.names}, 4)).tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("x > 1", [1, 3]),
        ("not x > 1", [0]),
        ("x > 1 or y == 5", [1, 2, 3]),
        ("x > 1 and y == 5", []),
        ("not (x > 1 and y == 5)", [0, 1, 3]),
        ("missing(x)", [2]),
        ("not missing(town)", [0, 1, 2]),
        ("0 < x <= 2", [0, 1]),
        ("x != y", [1, 3]),
        ("x + 2 * y == 3", [0]),
        ("x ** 2 - 1 >= 3 and x % 2 == 0", [1, 3]),
        ("x / 0 > 1", [0, 1, 3]),
        ("-x < -1", [1, 3]),
        ("town == 'Bonn'", [0, 2]),
        ("'Bonn' != town", [1]),
        ("town in ['Aachen', 'Köln']", [1]),
        ("town not in ('Aachen',)", [0, 2]),
        ("town == 'Köln'", []),
        ("not town == 'Köln'", [0, 1, 2]),
        ("x in [1, 4]", [0, 3]),
        ("y in {-1}", [3]),
        ("x not in []", [0, 1, 3]),
        ("`my col` == 1", [2, 3]),
        ("day >= '1970-01-02'", [1, 3]),
        ("'1970-01-02 12:00' == day", [1]),
        ("1 < 2", [0, 1, 2, 3]),
        ("town != 'it`s' and `my col` == 1 and town != 'that`s'", [2]),
        ("town == \"it's `\" or `y` == 5 or town == '\\'`' or `y` < 0", [2, 3]),
        ("missing < 3 and not missing(missing)", [0, 1]),
        ("`missing` == 3 and not missing(`x`)", [3]),
        ("\u00b5g > 1", [1]),
        ("`\u00b5g` > 1 and `my col` == 0", [1]),
    ],
)
def test_rows_that_are_kept(text: str, rows: list[int]) -> None:
    assert keep(text) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "is not part of the language"),
        ("x.__class__", "is not part of the language"),
        ("[x for x in y]", "is not part of the language"),
        ("(lambda: 1)() == 1", "is not part of the language"),
        ("x if y else x", "is not part of the language"),
        ("x[0] == 1", "is not part of the language"),
        ("missing('x')", "is not part of the language"),
        ("f'{x}' == 'a'", "is not part of the language"),
        ("x == True", "is not part of the language"),
        ("x == None", "is not part of the language"),
        ("town in [x]", "is not part of the language"),
        ("x is y", "is not part of the language"),
        ("x & y", "is not part of the language"),
        ("x == 1" + "0" * 400, "is not part of the language"),
        ("x == 1e999", "is not part of the language"),
        ("x >", "not an expression"),
        ("x = 1", "not an expression"),
        ("", "not an expression"),
        ("x > 1; y", "not an expression"),
        ("z > 1", "no column 'z' in the table"),
        ("x", "neither true nor false"),
        ("x + 1", "neither true nor false"),
        ("x and y > 1", "neither true nor false"),
        ("town + 1 > 2", "is not a number"),
        ("town > 'A'", "a category is compared"),
        ("town == 1", "a category is compared"),
        ("x == 'a'", "do not go together"),
        ("x in y", "after `in` stands no list"),
        ("day > 'soon'", "'soon' is not a time"),
        ("(" * 3000 + "x" + ")" * 3000, "many"),
        ("x > " + "-" * 3000 + "1", "nested too deeply|not part of"),
        ("x > 1 and " * 500, "characters are too many"),
    ],
)
def test_everything_else_is_refused_with_the_key(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        keep(text)
    assert caught.value.message.startswith("key 'data.rows': ")
    assert caught.value.remedy


def test_a_name_that_may_be_either_of_two_columns_is_refused() -> None:
    columns = ["\u00b5g", "\u03bcg"]
    with pytest.raises(DataError, match="may be any of the columns") as caught:
        RowFilter("\u00b5g > 1", columns)
    assert "backticks" in caught.value.remedy
    assert [RowFilter(f"`{name}` > 1", columns).names for name in columns] == [[name] for name in columns]
