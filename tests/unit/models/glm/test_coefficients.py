"""Coefficients in the units of the table: one for each product of columns, whatever terms it comes from."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.models.glm.model import Glm
from cases import trees


def _standardised(*names: str) -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a table of trees with some standardised columns, and its columns before that."""
    spec, table = trees(60)
    raw = table | {"height": np.linspace(3.0, 30.0, 60) ** 0.7}
    rows, variables = dict(raw), dict(spec.variables)
    for name in names:
        mean, scale = float(raw[name].mean()), float(raw[name].std())
        rows[name], variables[name] = (raw[name] - mean) / scale, Variable("number", mean=mean, scale=scale)
    fields = {name: FieldSpec((), values.dtype.name) for name, values in rows.items()}
    return dataclasses.replace(spec, fields=fields, variables=variables), rows, raw


@pytest.mark.parametrize(
    ("terms", "expected", "contrasts"),
    [
        ("mass * age + age:mass:height", ["mass:age", "age:mass:height", "age:height", "mass:height"], {}),
        ("mass + age + mass:age + age:height:mass", ["mass:age", "age:height:mass", "age:height", "height:mass"], {}),
        ("species:age + age:species:mass", ["species[elm]:age", "species[fir]:age"], {}),
        (
            "species + age:species",
            ["species[ash]", "species[fir]", "species[elm]", "age:species[fir]"],
            {"species": "sum"},
        ),
        ("species * age", ["species[ash]", "species[fir]", "species[elm]", "species[fir]:age"], {"species": "sum"}),
    ],
)
def test_a_product_in_another_order_is_the_same_coefficient(
    terms: str, expected: list[str], contrasts: dict[str, str]
) -> None:
    spec, table, raw = _standardised("age", "mass", "height")
    own = options_class("model", "glm")(formula=f"growth ~ {terms}", contrasts=contrasts)
    prepared, rows = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    model = Glm(own, prepared)
    draw = model.prior(prepared).sample(seed=jax.random.key(1))
    found = model.summaries(draw, {name: jnp.asarray(values) for name, values in rows.items()})
    (axis,) = model.axes()["b_original"]
    assert len({frozenset(label.split(":")) for label in axis.labels}) == len(axis.labels)
    assert [label for label in axis.labels if label in expected] == expected
    columns = raw | {f"species[{name}]": raw["species"] == i for i, name in enumerate(("ash", "elm", "fir"))}
    eta = np.zeros(60)
    for label, value in zip(axis.labels, np.asarray(found["b_original"]), strict=True):
        factors = [] if label == "intercept" else [columns[name] for name in label.split(":")]
        eta += value * np.prod([np.ones(60), *factors], axis=0)
    np.testing.assert_allclose(eta, found["predictor"], rtol=1e-8, atol=1e-8)
