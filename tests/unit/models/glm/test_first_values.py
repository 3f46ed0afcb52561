"""With many rows, chains begin where the rows say: coefficients, and parameters of every family, of outcomes known in part too."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.views import prepare_rows
from bayesmesh.models.glm.curvature import NUM_ROWS as FEWEST
from bayesmesh.models.glm.model import Glm

NUM_ROWS, NUM_GROUPS, SLOPE = 40_000, 100, 0.5


def zeros(random: Any, y: np.ndarray) -> np.ndarray:
    return np.where(random.random(NUM_ROWS) < 0.25, 0, y)


def shares(mean: np.ndarray) -> np.ndarray:
    return np.asarray(mean / (1 + mean))


FAMILIES: dict[str, tuple[Any, dict[str, float]]] = {
    "gamma": (lambda r, m: r.gamma(2, m / 2), {"shape": 2}),
    "weibull": (lambda r, m: m / 0.9027 * r.weibull(1.5, NUM_ROWS), {"shape": 1.5}),
    "log_normal": (lambda r, m: m * np.exp(0.7 * r.normal(size=NUM_ROWS)), {"sigma": 0.7}),
    "inverse_gaussian": (lambda r, m: r.wald(m, 3.0), {"shape": 3}),
    "beta": (lambda r, m: r.beta(10 * shares(m), 10 * (1 - shares(m))), {"phi": 10}),
    "beta_binomial": (lambda r, m: r.binomial(9, r.beta(10 * shares(m), 10 * (1 - shares(m)))), {"phi": 10}),
    "student_t": (lambda r, m: np.log(m) + 0.7 * r.standard_t(4, NUM_ROWS), {"sigma": 0.7, "nu": 4}),
    "asymmetric_laplace": (lambda r, m: np.log(m) + r.laplace(0, 0.7, NUM_ROWS), {"sigma": 0.35, "quantile": 0.5}),
    "negative_binomial": (lambda r, m: r.poisson(r.gamma(2, m / 2)), {"shape": 2}),
    "zero_inflated_poisson": (lambda r, m: zeros(r, r.poisson(m)), {"zi": 0.25}),
    "zero_inflated_negative_binomial": (lambda r, m: zeros(r, r.poisson(r.gamma(2, m))), {"shape": 2, "zi": 0.25}),
    "hurdle_gamma": (lambda r, m: zeros(r, r.gamma(2, m / 2)), {"shape": 2, "hu": 0.25}),
    "hurdle_log_normal": (
        lambda r, m: zeros(r, m * np.exp(0.7 * r.normal(size=NUM_ROWS))),
        {"sigma": 0.7, "hu": 0.25},
    ),
}

PARTIAL: dict[str, Any] = {
    "right": lambda y, c: {"y": np.minimum(y, c), "known": np.where(y > c, 1, 0)},
    "left": lambda y, c: {"y": np.maximum(y, c), "known": np.where(y < c, -1, 0)},
    "interval": lambda y, c: {"y": np.where(y < c, c / 50, y), "known": np.where(y < c, 2, 0), "end": np.maximum(y, c)},
}


def begin(family: str, options: dict[str, Any], columns: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Return the prepared data, and the latents where all coordinates are 0."""
    spec = DataSpec(NUM_ROWS, {k: FieldSpec((), v.dtype.name) for k, v in columns.items()}, {}, "float64")
    chosen = options_class("model", "glm")(formula="y ~ x + (1 | g)", family=family, **options)
    prepared, _ = prepare_rows(functools.partial(Glm.prepare, chosen), spec, columns)
    prior = Glm(chosen, prepared).prior(prepared)
    coordinates = prior.experimental_default_event_space_bijector()
    origin = jax.tree.map(jnp.zeros_like, coordinates.inverse(prior.sample(seed=jax.random.key(0))))
    return prepared, coordinates.forward(origin)


def simulate(family: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    x, g = random.normal(size=NUM_ROWS), random.integers(0, NUM_GROUPS, NUM_ROWS)
    mean = np.exp(SLOPE * x + random.normal(0, 0.6, NUM_GROUPS)[g])
    return {"x": x, "g": g, "y": FAMILIES[family][0](random, mean), "n": np.full(NUM_ROWS, 9)}


def check_slope(prepared: Any, x: np.ndarray) -> None:
    """The slope begins within a few standard errors of the truth."""
    location, root = prepared.arrays["location"], prepared.arrays["root"]
    assert abs(location[1] - SLOPE * x.std()) < 4 * np.sqrt((root @ root.T)[1, 1])


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_begin_at_what_the_rows_say(family: str) -> None:
    columns = simulate(family)
    prepared, first = begin(family, {"trials": "n"} if family == "beta_binomial" else {}, columns)
    for name, expected in FAMILIES[family][1].items():
        assert float(first[name]) == pytest.approx(expected, rel=0.1), name
        assert 0.002 < prepared.arrays[f"first_{name}"][1] < 0.1, name
    check_slope(prepared, columns["x"])


@pytest.mark.parametrize("kind", PARTIAL)
def test_outcomes_known_in_part_begin_at_what_they_say(kind: str) -> None:
    columns = simulate("weibull")
    random = np.random.default_rng(4)
    level = np.quantile(columns["y"], 0.65 if kind == "right" else 0.35) * random.uniform(0.5, 1.5, NUM_ROWS)
    columns |= PARTIAL[kind](columns["y"], level)
    options = {"censored": "known"} | ({"interval_end": "end"} if kind == "interval" else {})
    prepared, first = begin("weibull", options, columns)
    assert float(first["shape"]) == pytest.approx(1.5, rel=0.03)
    check_slope(prepared, columns["x"])


def test_a_parameter_with_a_predictor_begins_at_its_usual_value() -> None:
    columns = simulate("gamma")
    prepared, first = begin("gamma", {"parameters": {"shape": {"formula": "~ x"}}}, columns)
    assert float(first["shape_intercept"]) == pytest.approx(np.log(2), abs=0.1)
    check_slope(prepared, columns["x"])


def test_a_parameter_begins_on_the_scale_of_its_own_link() -> None:
    columns = simulate("student_t")
    options = {"parameters": {"sigma": {"formula": "~ x", "link": "log"}, "nu": 4.0}}
    _, first = begin("student_t", options, columns)
    assert float(first["sigma_intercept"]) == pytest.approx(np.log(0.7), abs=0.02)


def test_an_estimate_that_the_prior_forbids_is_not_used() -> None:
    columns = simulate("hurdle_gamma")
    _, first = begin("hurdle_gamma", {"priors": {"hu": "uniform(0.5, 0.9)"}}, columns)
    assert 0.5 < float(first["hu"]) < 0.9


def test_few_rows_are_left_to_the_chains() -> None:
    assert NUM_ROWS > FEWEST
    columns = {name: values[: FEWEST // 2] for name, values in simulate("gamma").items()}
    spec = DataSpec(FEWEST // 2, {k: FieldSpec((), v.dtype.name) for k, v in columns.items()}, {}, "float64")
    chosen = options_class("model", "glm")(formula="y ~ x", family="gamma")
    prepared, _ = prepare_rows(functools.partial(Glm.prepare, chosen), spec, columns)
    assert "first_shape" not in prepared.arrays
