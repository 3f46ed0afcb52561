"""Columns of terms, against formulaic's own design matrices."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import FieldSpec
from bayesmesh.data.views import prepare_rows
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.design import Source, evaluate_columns, make_columns
from bayesmesh.models.glm.formula import parse_formula
from bayesmesh.models.glm.model import Glm
from cases import trees


@pytest.fixture(scope="module")
def table() -> tuple[Any, dict[str, np.ndarray]]:
    return trees(60)


@pytest.mark.parametrize(
    "terms",
    [
        "age + mass",
        "species",
        "0 + species",
        "age + species + age:species",
        "age:species",
        "0 + age:species",
        "species * stage",
        "species:stage",
        "0 + species + stage",
        "0 + stage:species",
        "species + species:stage",
        "age * log(mass) * species",
        "I(age**2) + sqrt(mass):species",
    ],
)
def test_columns_are_formulaic_s(table: Any, terms: str) -> None:
    spec, rows = table
    formula = parse_formula(f"growth ~ {terms}", list(spec.fields))
    columns = make_columns(
        Source(spec.fields, spec.variables, spec.labels), formula.terms, has_intercept=formula.has_intercept
    )
    found = evaluate_columns(columns, rows, 60)
    frame = pd.DataFrame(rows).assign(
        **{k: pd.Categorical.from_codes(rows[k], list(v.levels)) for k, v in spec.variables.items() if v.levels}
    )
    expected = model_matrix(
        f"0 + {terms}" if not formula.has_intercept else terms, frame, context={"log": np.log, "sqrt": np.sqrt}
    )
    wanted = np.asarray(expected.drop(columns="Intercept", errors="ignore"), float)
    assert found.shape == wanted.shape
    assert len({label for each in columns for label in each.labels}) == found.shape[1]
    # The same space, of full rank: contrasts of products may be chosen in several ways.
    one = np.ones((60, int(formula.has_intercept)))
    found, wanted = (np.concatenate([one, matrix], axis=1) for matrix in (found, wanted))
    assert np.linalg.matrix_rank(found) == found.shape[1]
    fitted = wanted @ np.linalg.lstsq(wanted, found, rcond=None)[0]
    np.testing.assert_allclose(fitted, found, atol=1e-8 * np.abs(found).max())


def test_labels_name_levels(table: Any) -> None:
    spec, _ = table
    formula = parse_formula("growth ~ age + species + age:species", list(spec.fields))
    columns = make_columns(Source(spec.fields, spec.variables, spec.labels), formula.terms, has_intercept=True)
    assert [label for each in columns for label in each.labels] == [
        "age",
        "species[elm]",
        "species[fir]",
        "age:species[elm]",
        "age:species[fir]",
    ]


def test_a_transform_of_a_category_is_refused(table: Any) -> None:
    spec, _ = table
    formula = parse_formula("growth ~ log(species)", list(spec.fields))
    with pytest.raises(ConfigError, match="computes with 'species', a category"):
        make_columns(Source(spec.fields, spec.variables, spec.labels), formula.terms, has_intercept=True)


def test_sum_contrasts_are_columns_written_by_hand(table: Any) -> None:
    spec, rows = table
    by_hand = {name: (rows["species"] == i) - 1.0 * (rows["species"] == 2) for i, name in enumerate(("ash", "elm"))}
    fields = {**spec.fields, **{name: FieldSpec((), "float64") for name in by_hand}}
    found = []
    for formula, contrasts, own in (
        ("growth ~ age * species", {"species": "sum"}, {}),
        ("growth ~ age * (ash + elm)", {}, by_hand),
    ):
        options = options_class("model", "glm")(formula=formula, contrasts=contrasts, centred=False)
        of_case = dataclasses.replace(spec, fields=fields if own else spec.fields)
        prepared, made = prepare_rows(functools.partial(Glm.prepare, options), of_case, {**rows, **own})
        model = Glm(options, prepared)
        draw = model.prior(prepared).sample(seed=jax.random.key(1))
        found.append(
            (
                draw,
                model.prior(prepared).log_prob(draw),
                model.log_likelihood(draw, {k: jnp.asarray(v) for k, v in made.items()}),
                model.axes(),
            )
        )
    (draw, prior, likelihood, axes), (same, *others, _) = found
    assert axes["coefficients"][0].labels == (
        "age",
        "species[ash]",
        "species[elm]",
        "age:species[ash]",
        "age:species[elm]",
    )
    jax.tree.map(lambda *each: np.testing.assert_allclose(*each, rtol=1e-5), draw, same)
    np.testing.assert_allclose(prior, others[0], rtol=1e-5)
    np.testing.assert_allclose(likelihood, others[1], rtol=1e-4)


@pytest.mark.parametrize("name", ["age", "stage", "spices"])
def test_contrasts_of_what_is_not_a_category_of_the_formula_are_errors(table: Any, name: str) -> None:
    spec, rows = table
    options = options_class("model", "glm")(formula="growth ~ age + species", contrasts={name: "sum"})
    with pytest.raises(ConfigError, match=f"key 'model.contrasts': '{name}' is not a category of the formula"):
        prepare_rows(functools.partial(Glm.prepare, options), spec, rows)
