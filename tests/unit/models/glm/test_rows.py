"""What a table says of its columns, such as their roles, in the preparation of a model."""

from __future__ import annotations

import dataclasses
import functools
from contextlib import nullcontext

import numpy as np
import pytest

from bayesmesh.analyses._likelihood import check_rows
from bayesmesh.config.registry import options_class
from bayesmesh.data.base import FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.checks import check_order
from bayesmesh.models.glm.model import Glm
from cases import trees

NUM_ROWS = 60


def test_roles_of_the_data_are_the_options_of_the_model() -> None:
    spec, table = trees(NUM_ROWS)
    rate = {**table, "area": np.linspace(1, 2, NUM_ROWS), "copies": np.arange(NUM_ROWS) % 3.0}
    fields = {k: FieldSpec((), np.asarray(v).dtype.name) for k, v in rate.items()}
    about = dataclasses.replace(spec, fields=fields, roles={"exposure": "area", "weights": "copies"})
    read = options_class("model", "glm")
    by_data, by_model = read(formula="leaves ~ age", family="poisson"), read(formula="leaves ~ age", family="poisson", exposure="area", weights="copies")  # fmt: skip
    made = [
        prepare_rows(functools.partial(Glm.prepare, own), given, rate)
        for own, given in ((by_data, about), (by_model, dataclasses.replace(about, roles={})))
    ]
    for name, values in made[0][1].items():
        np.testing.assert_array_equal(values, made[1][1][name])
    np.testing.assert_allclose(made[0][1]["offset"], np.log(rate["area"]))
    np.testing.assert_array_equal(made[0][1]["weights"], rate["copies"])
    with pytest.raises(ConfigError, match=r"'age', where the data have 'area' in the key 'data.exposure'"):
        Glm.prepare(read(formula="leaves ~ age", family="poisson", exposure="age"), about, lambda: iter([rate]))
    with pytest.raises(ConfigError, match="family normal is not a log of a mean"):
        Glm.prepare(read(formula="growth ~ age"), about, lambda: iter([rate]))
    with pytest.raises(ConfigError, match="training row 1: the exposure is 0"):
        Glm.prepare(by_data, about, lambda: iter([{**rate, "area": np.zeros(NUM_ROWS)}]))


def test_analyses_that_leave_out_rows_refuse_weights_before_sampling() -> None:
    spec, table = trees(NUM_ROWS)
    for options in ({}, {"weights": "plots"}):
        own = options_class("model", "glm")(formula="growth ~ age", **options)
        prepared, _ = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
        how = pytest.raises(ConfigError, match=r"'loo': .*'model.weights': 'plots'") if options else nullcontext()
        with how:
            check_rows("loo", Glm(own, prepared), prepared)


@pytest.mark.parametrize("key", ["offset", "weights", "censored"])
def test_a_standardised_column_has_no_role(key: str) -> None:
    spec, table = trees(NUM_ROWS)
    about = dataclasses.replace(spec, variables={**spec.variables, "mass": Variable("number", mean=1.0, scale=2.0)})
    own = options_class("model", "glm")(formula="growth ~ age", **{key: "mass"})
    with pytest.raises(ConfigError, match=f"'model.{key}': 'mass' is standardised"):
        Glm.prepare(own, about, lambda: iter([table]))


@pytest.mark.parametrize(
    ("about", "is_refused"),
    [
        (Variable("category", levels=("high", "low", "medium")), True),
        (Variable("category", levels=("A", "B", "C"), is_ordered=True), False),
        (Variable("category", levels=("low", "medium", "high")), False),
        (Variable("category", levels=("1", "2", "3")), False),
        (Variable("category", levels=("no", "yes")), False),
    ],
)
def test_an_ordinal_outcome_in_alphabetical_order_is_refused(about: Variable, *, is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(ConfigError, match=r"'grade' are in alphabetical order \(high, low, medium\)"):
            check_order("grade", about)
    else:
        check_order("grade", about)


def test_a_count_beyond_32_bits_is_refused() -> None:
    spec, table = trees(NUM_ROWS)
    own = options_class("model", "glm")(formula="leaves ~ age", family="poisson")
    leaves = np.asarray(table["leaves"], np.int64).copy()
    leaves[7] = 3_000_000_000
    with pytest.raises(ConfigError, match="training row 8: 'leaves' is 3e\\+09, and counts are at most"):
        Glm.prepare(own, spec, lambda: iter([{**table, "leaves": leaves}]))


def test_an_exposure_whose_log_is_the_offset_as_well_is_named(caplog: pytest.LogCaptureFixture) -> None:
    spec, table = trees(NUM_ROWS)
    own = options_class("model", "glm")(formula="leaves ~ age", family="poisson", offset="mass", exposure="plots")
    for mass, is_doubled in ((np.log(table["plots"]), True), (table["mass"], False)):
        caplog.clear()
        Glm.prepare(own, spec, lambda mass=mass: iter([{**table, "mass": mass}]))
        assert ("'mass' is the log of the exposure 'plots'" in caplog.text) is is_doubled


def _with_grades(grades: np.ndarray, about: Variable | None, formula: str, family: str) -> Glm:
    """Return a model whose table has a column of grades."""
    spec, table = trees(NUM_ROWS)
    rows = {**table, "grade": grades}
    fields = {**spec.fields, "grade": FieldSpec((), grades.dtype.name)}
    variables = {**spec.variables, "grade": about} if about else spec.variables
    own = options_class("model", "glm")(formula=formula, family=family)
    given = dataclasses.replace(spec, fields=fields, variables=variables)
    return Glm(own, prepare_rows(functools.partial(Glm.prepare, own), given, rows)[0])


@pytest.mark.parametrize("family", ["categorical", "ordinal"])
def test_codes_of_levels_count_from_0_and_are_their_names(caplog: pytest.LogCaptureFixture, family: str) -> None:
    codes = np.arange(NUM_ROWS) % 3
    made = _with_grades(codes, None, "grade ~ age", family)
    name = "b_age" if family == "categorical" else "baseline"
    assert [axis and axis.labels for axis in made.axes()[name]] == [("0", "1", "2")[family == "categorical" :]]
    assert not caplog.messages
    with pytest.raises(ConfigError, match="smallest value of 'grade' in the training rows is 1;") as caught:
        _with_grades(codes + 1, None, "grade ~ age", family)
    assert "I(grade - 1)" in caught.value.remedy
    assert _with_grades(2 * codes, None, "grade ~ age", family).plan.num_levels == 5
    assert "2 of the 5 levels of 'grade' have no training row, the first of them 1." in caplog.text
