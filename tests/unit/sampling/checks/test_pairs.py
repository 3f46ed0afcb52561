"""Sums over pairs of rows are named, and matrices that a model needs are not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.scipy.linalg import cho_solve, cholesky

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.log_density import LogDensity
from bayesmesh.sampling.checks.pairs import sums_over_pairs
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows


@pytest.fixture
def module() -> Iterator[ModuleType]:
    module = ModuleType("pairs_of_rows")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def said(module: ModuleType) -> Callable[..., str]:
    """Return what is said of a function of latents and data."""

    def of(function: Any, shapes: Mapping[str, tuple[int, ...]], num_chains: int = 2) -> str:
        module.likelihood = function  # type: ignore[attr-defined]
        fields = {name: FieldSpec(shape, "float64") for name, shape in shapes.items()}
        options = options_class("model", "log_density")
        prior = {"a": "normal(0, 1)", "b": "normal(0, 1)[3]"}
        spec = DataSpec(1, fields, {}, "float64")
        model = LogDensity(options(function="pairs_of_rows:likelihood", prior=prior), spec)
        return "\n".join(sums_over_pairs(Target(model, spec, lay_out_rows(1, 1, 1)), num_chains))

    return of


def independent(latents: Any, data: Any) -> Any:
    mean = latents["a"] + data["x"] @ latents["b"]
    return -0.5 * jnp.sum((data["y"] - mean.reshape(data["y"].shape)) ** 2)


def broadcast(latents: Any, data: Any) -> Any:
    return -0.5 * jnp.sum((data["y"] - latents["a"] - data["x"] @ latents["b"]) ** 2)


def covariance(latents: Any, data: Any) -> Any:
    gaps = data["x"][:, :1] - data["x"][:, 0]
    factor = cholesky(jnp.exp(-(gaps**2)) + jnp.exp(latents["a"]) * jnp.eye(len(gaps)), lower=True)
    return -0.5 * data["y"] @ cho_solve((factor, True), data["y"]) - jnp.log(jnp.diag(factor)).sum()


@pytest.mark.parametrize("num_rows", [20, 30])
def test_a_shape_that_broadcasts_over_pairs_of_rows_is_named(said: Callable[..., str], num_rows: int) -> None:
    found = said(broadcast, {"x": (num_rows, 3), "y": (num_rows, 1)})
    assert "test_pairs.py, line " in found
    assert f"sums an array of shape ({num_rows}, {num_rows})" in found


def risk_sets(latents: Any, data: Any) -> Any:
    """The partial likelihood of Cox's model."""
    risk = data["x"] @ latents["b"]
    at_risk = data["t"][:, None] >= data["t"][None, :]
    return jnp.sum(risk - jnp.log(jnp.sum(jnp.where(at_risk.T, jnp.exp(risk), 0), axis=1)))


def mixture(latents: Any, data: Any) -> Any:
    """With as many components as rows."""
    means = jnp.linspace(-3, 3, 20) + latents["a"]
    return jax.nn.logsumexp(-0.5 * (data["y"][:, None] - means) ** 2, axis=1).sum()


@pytest.mark.parametrize(
    ("function", "shapes", "num_chains"),
    [
        (independent, {"x": (20, 3), "y": (20, 1)}, 2),
        (independent, {"x": (20, 3), "y": (20,)}, 20),
        (broadcast, {"x": (20, 3), "y": (20,)}, 2),
        (covariance, {"x": (20, 3), "y": (20,)}, 2),
        (covariance, {"x": (20, 3), "y": (20,)}, 20),
        (risk_sets, {"x": (20, 3), "t": (20,)}, 2),
        (mixture, {"y": (20,)}, 2),
        (lambda latents, data: -jnp.sum(latents["a"] * data["x"]), {"x": (20, 20)}, 2),
    ],
)
def test_what_is_meant_is_not_named(
    said: Callable[..., str], function: Any, shapes: Mapping[str, tuple[int, ...]], num_chains: int
) -> None:
    assert not said(function, shapes, num_chains)
