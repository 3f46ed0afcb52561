"""NumPyro's improper priors and factors: places for chains to start, and no draws of a prior."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer.util import log_density

from bayesmesh.config.registry import load_component, options_class
from bayesmesh.data.base import DataSpec, FieldSpec

DATA = {"x": np.array([1.0, -1.0, 2.0]), "y": np.array([0.5, 0.0, 1.0])}
SPEC = DataSpec(3, {name: FieldSpec((), "float64") for name in DATA}, {}, "float64")


def regression(x: Any, y: Any, slope: Any) -> None:
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(slope * x, sd), obs=y)


def proper(x: Any, y: Any) -> None:
    regression(x, y, numpyro.sample("slope", dist.Normal(0.0, 1.0)))


def flat(x: Any, y: Any) -> None:
    regression(x, y, numpyro.sample("slope", dist.ImproperUniform(constraints.real, (), ())))


def bounded(x: Any, y: Any) -> None:
    low = numpyro.sample("low", dist.Normal(0.0, 1.0))
    above = dist.ImproperUniform(constraints.greater_than(low), (2,), ()).to_event(1)
    regression(x, y, numpyro.sample("slope", above).sum())


def with_factor(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.factor("near_one", -((slope - 1) ** 2))
    regression(x, y, slope)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    jax.config.update("jax_enable_x64", True)
    module = ModuleType("numpyro_functions_of_a_test")
    for function in (proper, flat, bounded, with_factor):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    options = options_class("model", "numpyro")
    return lambda name: load_component("model", "numpyro")(options(function=f"{module.__name__}:{name}"), SPEC)


@pytest.mark.parametrize(
    ("function", "is_proper"), [(proper, True), (flat, False), (bounded, False), (with_factor, False)]
)
def test_densities_are_numpyro_s_and_starts_are_apart(make: Any, function: Any, is_proper: bool) -> None:
    model = make(function.__name__)
    assert model.has_proper_prior == is_proper
    prior, rows = model.prior(SPEC), {name: jnp.asarray(value) for name, value in DATA.items()}
    draws = jax.vmap(lambda key: prior.sample(seed=key))(jax.random.split(jax.random.key(0), 20))
    assert (draws["slope"].reshape(20, -1).std(axis=0) > 0.1).all()
    one = {name: values[3] for name, values in draws.items()}
    expected = float(log_density(numpyro.handlers.seed(function, jax.random.key(0)), (), rows, one)[0])
    found = prior.log_prob(one) + model.log_likelihood(one, rows).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
