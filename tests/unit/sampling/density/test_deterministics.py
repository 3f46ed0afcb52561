"""Deterministic variables of PyMC and NumPyro are stored with the draws, within a limit."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import resolve_component
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.sampling.checks.model import check_deterministics
from bayesmesh.sampling.density.deterministics import choose_deterministics

SPEC = DataSpec(7, {"y": FieldSpec((), "float64")}, {}, "float64")


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


def make(kind: str, spec: DataSpec = SPEC, **options: Any) -> tuple[Any, dict[str, Any]]:
    model_class, own = resolve_component(
        "model", kind, {"function": f"{kind}_functions:with_deterministics", **options}
    )
    model = model_class(own, spec)
    return model, model.prior(spec).sample(seed=jax.random.key(0))


@pytest.mark.parametrize("kind", ["numpyro", "pymc"])
def test_values_are_those_of_the_draw(kind: str) -> None:
    model, draw = make(kind)
    y = jnp.arange(7.0)
    check_deterministics(model, {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in draw.items()}, SPEC)
    found = model.deterministics(draw, {"y": y})
    if kind == "pymc":
        assert set(found) == {"twice", "one", "mu"}, "a variable that is drawn anew is not determined"
        assert model.axes()["twice"][0].labels == ("a", "b")
        np.testing.assert_allclose(found["twice"], 2 * draw["mean"])
        np.testing.assert_allclose(found["mu"], draw["mean"][0] + draw["mean"][1] * y)
    else:
        assert set(found) == {"twice", "mu"}
        np.testing.assert_allclose(found["twice"], [2 * draw["mean"], 4 * draw["mean"]])
        np.testing.assert_allclose(found["mu"], draw["mean"] * y)


def test_those_that_grow_with_draws_and_rows_are_left_out_with_a_reason() -> None:
    model, draw = make("numpyro")
    latents = {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in draw.items()}
    assert choose_deterministics(model, SPEC, latents, 4000) == (("mu", "twice"), 7, ())
    many = dataclasses.replace(SPEC, num_rows=100_000)
    names, num_rows, (warning,) = choose_deterministics(model, many, latents, 4000)
    assert (names, num_rows) == (("twice",), 1), "rows are not read for those that do not depend on them"
    assert "'mu' is not stored: it would take 3,052 MiB in 4,000 draws" in warning
    huge = dataclasses.replace(SPEC, num_rows=10**9)
    assert "depends on the rows, which take 7,629 MiB" in choose_deterministics(model, huge, latents, 1).warnings[0]
