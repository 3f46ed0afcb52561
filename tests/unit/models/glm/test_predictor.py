"""Predictors of parameters: density, names, coordinates, new levels, and errors."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.config.registry import options_class
from bayesmesh.data.views import prepare_rows
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.model import Glm
from cases import trees

NUM_ROWS = 60


def make(formula: str, family: str = "normal", **options: Any) -> tuple[Glm, dict[str, Any], dict[str, np.ndarray]]:
    """Return a model of trees in float64, its rows, and those of the table."""
    spec, table = trees(NUM_ROWS)
    own = options_class("model", "glm")(formula=formula, family=family, **options)
    prepared, rows = prepare_rows(functools.partial(Glm.prepare, own), spec.with_dtype("float64"), table)
    return Glm(own, prepared), {k: jnp.asarray(v) for k, v in rows.items()}, table


SIGMA = {"formula": "~ age + (1 | site)", "priors": {"age": "normal(0, 0.1)"}}


def test_a_distributional_model_is_the_formula_that_it_says() -> None:
    with jax.enable_x64(True):
        model, rows, table = make("growth ~ age", parameters={"sigma": SIGMA})
        prior = model.prior(model.spec)
        z = prior.sample(seed=jax.random.key(1))
        away = np.asarray(table["age"]) - np.mean(table["age"])
        effects = np.asarray(z["sigma_effects_site"])[:, 0][table["site"]]
        sigma = np.exp(z["sigma_intercept"] + z["sigma_coefficients"][0] * away + effects)
        eta = z["intercept"] + z["coefficients"][0] * away
        wanted = stats.norm(eta, sigma).logpdf(table["growth"])
        np.testing.assert_allclose(model.log_likelihood(z, rows), wanted, rtol=1e-10)
        np.testing.assert_allclose(model.predict(z, rows).stddev(), sigma, rtol=1e-12)
        found = model.summaries(z, rows)
        assert found["sigma_b_age"] == z["sigma_coefficients"][0]
        at_zero = z["sigma_intercept"] - z["sigma_coefficients"][0] * np.mean(table["age"])
        np.testing.assert_allclose(found["sigma_intercept_at_zero"], at_zero)
        x = prior.experimental_default_event_space_bijector().inverse(z)
        back = prior.experimental_default_event_space_bijector().forward(x)
        for name, value in z.items():
            np.testing.assert_allclose(back[name], value, rtol=1e-10)
        assert model.grouping_columns() == {"site": "sigma_effects_site"}
        more = model.with_new_levels(z, {"site": 2}, jax.random.key(2))["sigma_effects_site"]
        assert more.shape[0] == z["sigma_effects_site"].shape[0] + 2


def test_the_prior_of_a_predictor_may_be_made_while_a_program_is_traced() -> None:
    model, *_ = make("growth ~ age", parameters={"sigma": SIGMA})
    z = model.prior(model.spec).sample(seed=jax.random.key(1))
    assert jnp.isfinite(jax.jit(lambda z: model.prior(model.spec).log_prob(z))(z))


def test_a_parameter_may_be_set_to_a_number() -> None:
    with jax.enable_x64(True):
        model, rows, table = make("growth ~ age", "student_t", parameters={"nu": 4})
        z = model.prior(model.spec).sample(seed=jax.random.key(1))
        assert "nu" not in z
        eta = z["intercept"] + z["coefficients"][0] * (np.asarray(table["age"]) - np.mean(table["age"]))
        wanted = stats.t(4, eta, z["sigma"]).logpdf(table["growth"])
        np.testing.assert_allclose(model.log_likelihood(z, rows), wanted, rtol=1e-10)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tau": "~ age"}, "the family normal has no parameter 'tau'"),
        ({"sigma": "growth ~ age"}, "'model.parameters.sigma': 'growth ~ age' does not begin with ~"),
        ({"sigma": "~ aeg"}, "'model.parameters.sigma': no column 'aeg'"),
        ({"sigma": "~ growth"}, "'model.parameters.sigma': the outcome 'growth' is also on the right"),
        ({"sigma": {"formula": "~ age", "priors": {"mass": "normal(0, 1)"}}}, "sigma.priors': the predictor of sigma has no 'mass'"),
        ({"sigma": {"formula": "~ age", "priors": {"age": "gamma(1, 1)"}}}, r"'model.parameters.sigma.priors.age': 'gamma\(1, 1\)' does not fit"),
    ],
)  # fmt: skip
def test_a_wrong_predictor_is_an_error_with_its_key(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        (model := make("growth ~ age", parameters=parameters)[0]).prior(model.spec)


@pytest.mark.parametrize(
    ("family", "name", "link", "own"),
    [
        ("normal", "sigma", "logit", "log"),
        ("normal", "sigma", "identity", "log"),
        ("student_t", "nu", "logit", "log"),
        ("ordered_beta", "cut_zero", "log", "identity"),
        ("zero_inflated_poisson", "zi", "log", "logit"),
        ("asymmetric_laplace", "quantile", "identity", "logit"),
    ],
)
def test_a_parameter_takes_the_link_of_its_support(family: str, name: str, link: str, own: str) -> None:
    with pytest.raises(ConfigError, match=f"'model.parameters.{name}.link': {name} has no link '{link}'") as caught:
        make("growth ~ age", family, parameters={name: {"formula": "~ age", "link": link}})
    assert f"use {own}," in (caught.value.remedy or "")


def test_a_parameter_with_a_formula_has_no_prior_of_its_own() -> None:
    model, *_ = make("growth ~ age", parameters={"sigma": "~ age"}, priors={"sigma": "exponential(1)"})
    with pytest.raises(ConfigError, match="'sigma' has a value of its own"):
        model.prior(model.spec)


def test_the_levels_of_an_outcome_have_no_predictor() -> None:
    with pytest.raises(ConfigError, match="the probabilities of the levels have no predictor"):
        make("stage ~ age", "ordinal", parameters={"baseline": "~ age"})
