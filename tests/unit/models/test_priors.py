"""Priors by name against SciPy, and texts that are not priors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bayesmesh.config.prior_texts import FAMILIES, parse_prior
from bayesmesh.errors import ConfigError
from bayesmesh.models._priors import distribution_of

SCIPY: dict[str, tuple[str, Any]] = {
    "normal": ("normal(0.5, 2)", stats.norm(0.5, 2)),
    "student_t": ("student_t(3, -1, 2.5)", stats.t(3, -1, 2.5)),
    "cauchy": ("cauchy(1, 2)", stats.cauchy(1, 2)),
    "laplace": ("laplace(1, 0.5)", stats.laplace(1, 0.5)),
    "half_normal": ("half_normal(2)", stats.halfnorm(0, 2)),
    "half_student_t": ("half_student_t(3, 2.5)", stats.t(3, 0, 2.5)),
    "half_cauchy": ("half_cauchy(2.5)", stats.halfcauchy(0, 2.5)),
    "exponential": ("exponential(2)", stats.expon(0, 1 / 2)),
    "gamma": ("gamma(5, 2)", stats.gamma(5, scale=1 / 2)),
    "inverse_gamma": ("inverse_gamma(3, 2)", stats.invgamma(3, scale=2)),
    "log_normal": ("log_normal(-1, 0.5)", stats.lognorm(0.5, scale=np.exp(-1))),
    "beta": ("beta(2, 3)", stats.beta(2, 3)),
    "uniform": ("uniform(-1, 4)", stats.uniform(-1, 5)),
    "dirichlet": ("dirichlet(1, 2, 0.5)", stats.dirichlet([1, 2, 0.5])),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_densities_are_scipy_s(family: str) -> None:
    text, reference = SCIPY[family]
    found = distribution_of(parse_prior(text, "key"), "float64")
    value = np.array([0.2, 0.3, 0.5]) if family == "dirichlet" else 0.7
    # Twice the density on the half of the line that is left.
    twice = np.log(2) if family == "half_student_t" else 0
    np.testing.assert_allclose(found.log_prob(value), reference.logpdf(value) + twice, rtol=1e-10)
    assert found.dtype == np.float64


def test_a_shape_is_of_independent_ones() -> None:
    several = distribution_of(parse_prior(" gamma( 2,0.5 ) [3, 2]", "key"), "float64")
    assert several.event_shape == (3, 2)
    values = np.linspace(0.5, 3, 6).reshape(3, 2)
    np.testing.assert_allclose(several.log_prob(values), stats.gamma(2, scale=2).logpdf(values).sum(), rtol=1e-10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("normal", "is not a prior"),
        ("__import__('os').system('true')", "is not a prior"),
        ("normal(0, 1) + 1", "is not a prior"),
        ("norml(0, 1)", "'norml' is not a family of priors"),
        ("normal(0)", "1 parameters"),
        ("normal(0, x)", "a parameter that is not a number"),
        ("normal(0, -1)", "sd must be greater than 0"),
        ("normal(nan, 1)", "mean must be finite"),
        ("uniform(2, 1)", "low must be less than high"),
        ("dirichlet(1)", "1 parameters"),
        ("dirichlet(1, 0)", "concentration must be greater than 0"),
        ("normal(0, 1)[0]", "a shape that holds nothing"),
    ],
)
def test_texts_that_are_not_priors_are_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        parse_prior(text, "key 'model.prior.x'")
    assert "key 'model.prior.x'" in caught.value.message
    assert caught.value.remedy
