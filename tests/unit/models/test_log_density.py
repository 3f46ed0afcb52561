"""Functions as models: against models that are written out, and the maps of supports against their derivatives."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models.log_density import SUPPORTS, LogDensity
from posteriors import POSTERIORS

tfd = tfp.distributions
GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "models.md"

WRITTEN_OUT = {
    "arma": (
        "ARMA(1, 1)",
        {"mean": "normal(0, 10)", "ar": "normal(0, 2)", "ma": "normal(0, 2)", "noise": "half_cauchy(2.5)"},
    ),
    "gaussian_process": (
        "Gaussian process",
        {"length": "gamma(5, 2)", "amplitude": "half_normal(3)", "noise": "half_normal(1)"},
    ),
    "lotka_volterra": (
        "Lotka-Volterra",
        {
            "growth": "log_normal(0, 0.5)[2]",
            "contact": f"log_normal({np.log(0.05)}, 0.8)[2]",
            "begin": f"log_normal({np.log(10)}, 1)[2]",
            "noise": "log_normal(-1, 1)[2]",
        },
    ),
}
"""Function of the guide -> the same posterior as a class, and its priors by name."""


@pytest.fixture(scope="module", autouse=True)
def series() -> Any:
    """The module that the guide shows."""
    found = re.search(r"^`series.py`:\n\n```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    assert found
    module = ModuleType("series")
    exec(compile(found[1], "series.py", "exec"), vars(module))
    sys.modules["series"] = module
    yield module
    del sys.modules["series"]


def make(spec: DataSpec, **options: Any) -> LogDensity:
    return LogDensity(options_class("model", "log_density")(**options), spec)


def spec_of(**shapes: tuple[int, ...]) -> DataSpec:
    return DataSpec(1, {k: FieldSpec(shape, "float64") for k, shape in shapes.items()}, {}, "float64")


@pytest.mark.parametrize("one_row", [1, 16])
def test_a_prior_by_function_may_have_a_latent_for_each_row(series: Any, one_row: int) -> None:
    """All data are one row to the workflow, and a few when it looks whether programs grow."""

    def prior(data_spec: Any) -> Any:
        zero = jnp.zeros((), data_spec.dtype)
        return tfd.JointDistributionNamed({"level": tfd.Sample(tfd.Normal(zero, zero + 1), data_spec.num_rows)})

    series.level_prior = prior
    series.level = lambda latents, data: -0.5 * jnp.sum((data["y"] - latents["level"]) ** 2)
    spec = dataclasses.replace(spec_of(x=(7, 2), y=(7,)), num_rows=one_row)
    model = make(spec, function="series:level", prior_function="series:level_prior")
    assert model.prior(spec).sample(seed=jax.random.key(0))["level"].shape == (7,)


@pytest.mark.parametrize("function", WRITTEN_OUT)
def test_functions_of_the_guide_are_the_posteriors_written_as_classes(function: str) -> None:
    name, prior = WRITTEN_OUT[function]
    case = POSTERIORS[name].case("float64")
    model = make(case.spec, function=f"series:{function}", prior=prior)
    priors = [each.prior(case.spec) for each in (model, case.model)]

    @jax.jit
    def evaluate(latents: Any) -> Any:
        likelihoods = [each.log_likelihood(latents, case.arrays) for each in (model, case.model)]
        return [each.log_prob(latents) for each in priors], likelihoods

    for seed in range(3):
        latents = priors[1].sample(seed=jax.random.key(seed))
        assert {k: v.shape for k, v in priors[0].sample(seed=jax.random.key(0)).items()} == {
            k: v.shape for k, v in latents.items()
        }
        (log_prior, expected), (found, wanted) = evaluate(latents)
        np.testing.assert_allclose(log_prior, expected, rtol=1e-10)
        assert found.shape == (1,)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


POINTS = {
    "positive": [0.5, 2.0, 7.0],
    "unit": [0.1, 0.5, 0.9],
    "simplex": [0.2, 0.3, 0.5],
    "ordered": [-1.0, 0.5, 3.0],
    "correlation_cholesky": [[1.0, 0.0], [0.6, 0.8]],
}


@pytest.mark.parametrize("support", SUPPORTS)
def test_supports_have_the_jacobian_of_their_maps(support: str) -> None:
    model = make(spec_of(y=(3,)), function="series:arma", test_point={"x": POINTS[support]}, support={"x": support})
    prior = model.prior(model.spec)
    assert prior.log_prob({"x": jnp.asarray(POINTS[support])}) == 0
    maps = prior.experimental_default_event_space_bijector()
    drawn = prior.sample(seed=jax.random.key(1))
    assert drawn["x"].shape == np.shape(POINTS[support])
    there = jax.jit(maps.inverse)(drawn)
    np.testing.assert_allclose(maps.forward(there)["x"], drawn["x"], rtol=1e-9)
    # The free entries of a simplex are all but the last; those of a Cholesky factor, below the diagonal.
    free: Callable[[Any], Any] = {"simplex": lambda x: x[:-1], "correlation_cholesky": lambda x: x[1:, 0]}.get(
        support, lambda x: x
    )
    jacobian = jax.jacobian(lambda z: free(maps.forward({"x": z})["x"]))(there["x"])
    expected = np.linalg.slogdet(np.atleast_2d(jacobian))[1]
    np.testing.assert_allclose(maps.forward_log_det_jacobian(there), expected, rtol=1e-9)


def test_a_test_point_lies_in_the_middle_of_the_starts() -> None:
    model = make(
        spec_of(y=(3,)), function="series:arma", test_point={"x": [1.0, -2.0], "s": 3.0}, support={"s": "positive"}
    )
    prior = model.prior(model.spec)
    drawn = jax.vmap(lambda key: prior.sample(seed=key))(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(drawn["x"].mean(0), [1, -2], atol=0.08)
    np.testing.assert_allclose(np.log(drawn["s"]).mean(), np.log(3), atol=0.08)
    np.testing.assert_allclose(drawn["x"].std(0), 1, atol=0.08)
    assert not model.has_proper_prior


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "a prior or a test point is needed, found neither"),
        ({"prior": {"x": "normal(0, 1)"}, "test_point": {"x": 1.0}}, "found prior and test_point"),
        ({"test_point": {"x": 1.0}, "support": {"y": "positive"}}, "'y' is not a latent of the test point"),
        ({"prior": {"x": "normal(0, 1)"}, "support": {"x": "positive"}}, "'x' is not a latent of the test point"),
        ({"prior": {"x": "normal(0, 1)"}, "function": "functions:nothing"}, "functions has no nothing"),
        ({"prior": {"x": "normal(0, 1)"}, "function": "functions:jnp"}, "is not a function but module"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        make(spec_of(y=(3,)), **{"function": "series:arma", **options})
