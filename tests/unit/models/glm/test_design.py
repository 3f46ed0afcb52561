"""Columns of terms, against formulaic's own design matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix

from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.design import Source, evaluate_columns, make_columns
from bayesmesh.models.glm.formula import parse_formula
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
