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
        ("y ~ ", "has no terms\n  remedy: for an intercept alone, write y ~ 1"),
        ("~ x", "not of the form"),
        ("y ~ x ~ z", "not of the form"),
        ("y ~ nowhere", "no column 'nowhere' in the data"),
        ("y ~ x +* z", "cannot be read"),
        ("y ~ x.real", "more than arithmetic"),
        ("y ~ x[0]", "more than arithmetic"),
        ("y ~ __import__('os').system('true')", "cannot be read as terms"),
        ("y ~ x + __import__(x).z", "more than arithmetic|cannot be read"),
        ("y ~ open('file')", "no function 'open'"),
        ("y ~ log(x, 2)", "'log' takes one argument"),
        ("y ~ I(x > 3)", "is a comparison"),
        ("y ~ x + (1 + x | g", "a parenthesis is not closed"),
        ("y ~ x^0.5", "not a whole number"),
        ("y ~ x^-1", "cannot be read"),
        ("y ~ {x if x else z}", "more than arithmetic"),
        ("y ~ I([i for i in x])", "more than arithmetic"),
        ("y ~ x + I(3)", "has no column in it"),
        ("y ~ log3(x)", "no function 'log3'"),
        ("y ~ log(`his col`)", "no column 'his col' in the data"),
        ("y ~ log(``)", "cannot be read"),
        ("y ~ 2:x", "cannot be read|as a factor"),
        ("y ~ (x + z + g + h)^9", "expand to more than"),
        (f"y ~ {'*'.join(['x', 'z', 'g', 'h'] * 6)}", "expand to more than"),
        ("y ~ ((x + z + g)^4)^4", "expand to more than"),
        (f"y ~ x^{'9' * 400}", "expand to more than"),
        (f"y ~ {'log(' * 900}x{')' * 900}", "cannot be read"),
        (f"y ~ I({'-' * 3900}x)", "cannot be read"),
        (f"y ~ I({'x+' * 300}x)", "too long for a transform"),
        (f"I({'x+' * 3000}x) ~ z", "cannot be read|too long"),
        (f"y ~ I(x + {'9' * 400})", "a number that is too large"),
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


@pytest.mark.parametrize("power", [3, 4])
def test_the_number_of_terms_is_bounded(power: int) -> None:
    columns = [f"x{i}" for i in range(40)]
    with pytest.raises(ConfigError, match=re.escape(f"use at most {MOST_TERMS}")) as caught:
        parse_formula(f"x0 ~ ({' + '.join(columns[1:20])})^{power}", columns)
    assert "terms" in caught.value.message
    assert len(parse_formula(f"x0 ~ ({' + '.join(columns[1:30])})^2", columns).terms) == 29 * 30 / 2
    assert len(parse_formula(f"x0 ~ {' + '.join(columns[1:] * 20)}", columns).terms) == 39


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("y ~ C(g)", "types: {g: category}"),
        ("y ~ C(`my col`, Treatment('b'))", "types: {`my col`: category}"),
        ("y | trials(h) ~ x", "trials: h"),
        ("p(y, h) ~ x", "trials: h"),
        ("cbind(x, z) ~ g", "the sum of both"),
        ("cbind(x, z - x) ~ g", "trials: z"),
        ("y ~ offset(log(z / 1000))", "compute what is inside the log"),
        ("y ~ x %in% g", "write a:b"),
        ("y | weights(h) ~ x", "weights: h"),
        ("y | more ~ x", "weights: w"),
        ("y ~ x + offset(log(h))", "exposure: h"),
        ("y ~ x + offset(h)", "offset: h"),
        ("y ~ scale(x)", "standardise: [x]"),
        ("y ~ poly(x, 2)", "I(x^2)"),
        ("y ~ s(x, bs = 'cr')", "no smooth terms"),
        ("y ~ np.log(x)", "write log(x)"),
        ("y ~ numpy.square(x)", "I(x^2)"),
        ("y ~ lag(x)", "compute this in the table"),
        ("y ~ Q('my col')", "`my col`"),
        ("y ~ my col", "`my col`"),
        ("y ~ (1 | gr(g, by = h))", "(1 | g)"),
        ("y ~ (1 |p| g)", "(1 | g)"),
        ("y ~ (1 + x | p | g)", "(1 + x | g)"),
        ("y | se(h, sigma = TRUE) ~ 1", "known_error: h"),
        ("y | cens(g) ~ x", "censored: g"),
        ("Surv(y, g) ~ x", "censored: g"),
        ("censored(y, g) ~ x", "censored: g"),
        ("y | trunc(lb = 0) ~ x", "truncated: {lower: 0, upper: 100}"),
        ("y ~ (1 | g/h)", "(1 | g) + (1 | g_and_h)"),
        ("y ~ x | g", "(x | g)"),
        ("y == 1 ~ x", "the second of two `levels`"),
        ("y = x", "y ~ x"),
        ("y ~ x, sigma ~ z", "that of the outcome alone"),
        ("y ~ 2*x", "I(2 * x)"),
        ("y ~ x > 3", "a column of the comparison"),
        ("y ~ 0 + Intercept + x", "write 1"),
    ],
)
def test_idioms_of_other_languages_are_answered(text: str, instead: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_formula(text, COLUMNS)
    assert instead in caught.value.remedy
    assert "did you mean" not in caught.value.remedy
