"""PyMC models that hold their data, and those that take all data as one row, against PyMC's own log density."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import pymc_functions
from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Axis
from bayesmesh.models.pymc.model import PymcFunction
from bayesmesh.sampling.checks.model import check_axes, check_model

GENERATOR = np.random.default_rng(3)
ROWS = {
    "x": GENERATOR.standard_normal(12), "y": GENERATOR.standard_normal(12), "town": np.arange(12, dtype=np.int32) % 3
}  # fmt: skip
Options = options_class("model", "pymc")
TOWNS = ("Aachen", "Bonn", "Ulm")


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


def make(function: str, **options: Any) -> tuple[PymcFunction, DataSpec]:
    """Return the model of a function on all data as one row, and their description."""
    fields = {k: FieldSpec(v.shape, v.dtype.name) for k, v in ROWS.items()}
    variables = {"town": Variable("category", levels=TOWNS)}
    spec = DataSpec(1, fields, {}, "float64", (), variables)
    own = Options(function=f"pymc_functions:{function}", **options)
    preparation = PymcFunction.prepare(own, spec, lambda: iter([{k: v[None] for k, v in ROWS.items()}]))
    if preparation is not None:
        spec = dataclasses.replace(spec, arrays=preparation.arrays)
    return PymcFunction(own, spec), spec


def test_a_model_of_bambi_has_bambi_s_density() -> None:
    model, spec = make("of_bambi", given="frame")
    assert model.reads_whole(model.options)
    assert not model.has_predictions
    z = model.prior(spec).sample(seed=jax.random.key(1))
    names = {
        "sigma": "sigma", "Intercept": "Intercept", "x": "x", "intercept_by_town_sigma": "1|town_sigma",
        "intercept_by_town_offset": "1|town_offset", "x_by_town_sigma": "x|town_sigma", "x_by_town_offset": "x|town_offset",
    }  # fmt: skip
    assert set(z) == set(names)
    frame = pd.DataFrame({**ROWS, "town": pd.Categorical.from_codes(ROWS["town"].tolist(), list(TOWNS))})
    own = pymc_functions.of_bambi(frame)
    point = {str(own.rvs_to_values[rv].name): rv for rv in own.free_RVs}
    constrained = {names[k]: np.asarray(v) for k, v in z.items()}
    unconstrained = {
        value: np.log(constrained[str(rv.name)]) if value.endswith("_log__") else constrained[str(rv.name)]
        for value, rv in point.items()
    }
    expected = float(own.compile_logp(mode="FAST_COMPILE", jacobian=False)(unconstrained))
    rows = {k: jnp.asarray(v)[None] for k, v in ROWS.items()}
    found = model.prior(spec).log_prob(z) + model.log_likelihood(z, rows).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    latents = check_model(PymcFunction, model.options, spec)
    assert set(latents) == set(names)
    (axis,) = model.axes()["x_by_town_offset"]
    assert axis == Axis("town__factor_dim", TOWNS)
    check_axes(model, latents, latents)


def test_what_cannot_be_taken_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"returns DataFrame instead of a PyMC model(?s:.*)`backend.model`"):
        make("identity", given="frame")[0].axes()
    own = Options(function="pymc_functions:of_bambi", given="frame")
    with pytest.raises(ConfigError, match="bind it to prepared data"):
        PymcFunction(own, make("walk", whole=True)[1]).prior(make("walk", whole=True)[1])
    holding = Options(function="pymc_functions:held")
    with pytest.raises(ConfigError, match=r"nothing in it depends on the rows(?s:.*)given: frame"):
        PymcFunction(holding, make("walk", whole=True)[1]).prior(make("walk", whole=True)[1])
