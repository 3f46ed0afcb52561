"""Formulas become terms, and what is not a formula is refused without being run."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.formula import MOST_TERMS, TRANSFORMS, parse_formula

COLUMNS = ["y", "x", "z", "g", "h", "my col"]


def named(text: str) -> list[str]:
    """Terms of the population, and 1 for the intercept."""
    found = parse_formula(text, COLUMNS)
    return [*(["1"] if found.has_intercept else []), *(":".join(f.text for f in term) for term in found.terms)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y ~ x", ["1", "x"]),
        ("y ~ 0 + x", ["x"]),
        ("y ~ x - 1", ["x"]),
        ("y ~ 1", ["1"]),
        ("y ~ x * z", ["1", "x", "z", "x:z"]),
        ("y ~ (x + z + g)^2 - x:z", ["1", "x", "z", "g", "x:g", "z:g"]),
        ("y ~ g / h", ["1", "g", "g:h"]),
        ("y ~ `my col` + log(x)", ["1", "my col", "log(x)"]),
        ("y ~ I(x**2 - 1)", ["1", "I(x ** 2 - 1)"]),
        ("y ~ I(2 * x^2)", ["1", "I(2 * x ^ 2)"]),
        ("y ~ x + (1 | g)", ["1", "x"]),
        ("y ~ (1 + x | g) - 1", []),
    ],
)
def test_operators_have_their_meaning(text: str, expected: list[str]) -> None:
    assert named(text) == expected


def test_effects_of_groups() -> None:
    found = parse_formula("y ~ x + (1 + x | g) + (0 + z || h)", COLUMNS).groups
    assert [(each.group, len(each.terms), () in each.terms, each.is_correlated) for each in found] == [
        ("g", 2, True, True),
        ("h", 1, False, False),
    ]


def test_transforms_are_numpy_s() -> None:
    x = np.array([0.5, 1.0, 2.0])
    (term,) = parse_formula("y ~ I(2 * log(x) - x / 4)", COLUMNS).terms
    np.testing.assert_allclose(term[0].evaluate({"x": x}), 2 * np.log(x) - x / 4, rtol=1e-14)
    assert term[0].names == ["x", "x"]
    (power,) = parse_formula("y ~ I(2 * x^2)", COLUMNS).terms
    np.testing.assert_allclose(power[0].evaluate({"x": x}), 2 * x**2, rtol=1e-14)
    assert all(np.isfinite(function(x)).all() for function in TRANSFORMS.values())


def test_names_in_backticks_are_columns_inside_transforms() -> None:
    rows = {"my col": np.array([1.0, 4.0]), "a+b": np.array([2.0, 8.0]), "_0": np.array([3.0, 5.0])}
    texts = "I(`my col`^2 + _0)", "sqrt(`my col` * `a+b`)"
    found = parse_formula(f"log(`a+b`) ~ {texts[0]} + (1 + log2(`my col`) | g)", [*rows, "g"])
    assert [factor.names for term in found.terms for factor in term] == [["_0", "my col"]]
    np.testing.assert_array_equal(found.outcome.evaluate(rows), np.log(rows["a+b"]))
    np.testing.assert_array_equal(found.terms[0][0].evaluate(rows), rows["my col"] ** 2 + rows["_0"])
    np.testing.assert_array_equal(found.groups[0].terms[1][0].evaluate(rows), [0.0, 2.0])
    (term,) = parse_formula(f"g ~ {texts[1]}", [*rows, "g"]).terms
    np.testing.assert_allclose(term[0].evaluate(rows), np.sqrt([2.0, 32.0]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("y", "not of the form outcome ~ terms"),
        ("~ x", "not of the form"),
        ("y ~ x ~ z", "not of the form"),
        ("y ~ nowhere", "no column 'nowhere' in the data"),
        ("y ~ x +* z", "cannot be read"),
        ("y ~ x.real", "more than arithmetic"),
        ("y ~ x[0]", "more than arithmetic"),
        ("y ~ __import__('os').system('true')", "cannot be read as terms"),
        ("y ~ x + __import__(x).z", "more than arithmetic|cannot be read"),
        ("y ~ open('file')", "no function 'open'"),
        ("y ~ log(x, 2)", "more than arithmetic"),
        ("y ~ {x if x else z}", "more than arithmetic"),
        ("y ~ I([i for i in x])", "more than arithmetic"),
        ("y ~ x + I(3)", "has no column in it"),
        ("y ~ lag(x)", "no function 'lag'"),
        ("y ~ log(`his col`)", "no column 'his col' in the data"),
        ("y ~ log(``)", "cannot be read"),
        ("y ~ 2:x", "cannot be read|as a factor"),
        ("y ~ (x + z + g + h)^9", "a power of 9"),
        ("y ~ x | g", "in parentheses"),
        ("y ~ (1 | g:h)", "not the name of a column"),
        ("y ~ (1 | g) + (0 + x | g)", "appear twice"),
        ("y ~ (0 | g)", "has no effect"),
        ("y ~ x + y", "the outcome 'y' is also on the right"),
        ("log(y) ~ (1 + I(y + x) | g)", "the outcome 'y' is also on the right"),
        ("y ~ x + (1 | y)", "the outcome 'y' is also on the right"),
    ],
)
def test_what_is_not_a_formula_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        parse_formula(text, COLUMNS)
    assert caught.value.message.startswith("key 'model.formula'")
    assert caught.value.remedy


def test_the_number_of_terms_is_bounded() -> None:
    columns = [f"x{i}" for i in range(40)]
    with pytest.raises(ConfigError, match=re.escape(f"use at most {MOST_TERMS}")) as caught:
        parse_formula(f"x0 ~ ({' + '.join(columns[1:16])})^4", columns)
    assert "terms" in caught.value.message


@pytest.mark.parametrize("term", ["log(\u00b5g)", "I(2 * \u00b5g ** 2)", "\u00b5g"])
def test_names_that_python_would_normalise_are_those_of_the_table(term: str) -> None:
    found = parse_formula(f"y ~ {term}", ["y", "\u00b5g"])
    assert found.terms[0][0].names == ["\u00b5g"]
    assert np.isfinite(found.terms[0][0].evaluate({"\u00b5g": np.ones(2)})).all()


def test_a_transform_of_either_of_two_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="may be any of the columns") as caught:
        parse_formula("y ~ log(\u00b5g)", ["y", "\u00b5g", "\u03bcg"])
    assert "rename" in caught.value.remedy
