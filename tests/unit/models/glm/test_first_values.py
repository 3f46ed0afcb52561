"""Parameters of families begin where the quick fit of simulated rows finds them."""

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
from bayesmesh.models.glm.model import Glm

NUM_ROWS, NUM_GROUPS = 20_000, 100


def zeros(random: Any, y: np.ndarray) -> np.ndarray:
    return np.where(random.random(NUM_ROWS) < 0.25, 0, y)


CASES: dict[str, tuple[Any, dict[str, float]]] = {
    "gamma": (lambda r, mean: r.gamma(2, mean / 2), {"shape": 2}),
    "weibull": (lambda r, mean: mean / 0.9027 * r.weibull(1.5, NUM_ROWS), {"shape": 1.5}),
    "log_normal": (lambda r, mean: mean * np.exp(0.7 * r.normal(size=NUM_ROWS)), {"sigma": 0.7}),
    "inverse_gaussian": (lambda r, mean: r.wald(mean, 3.0), {"shape": 3}),
    "beta": (lambda r, mean: r.beta(10 * mean / (1 + mean), 10 / (1 + mean)), {"phi": 10}),
    "hurdle_gamma": (lambda r, mean: zeros(r, r.gamma(2, mean / 2)), {"shape": 2, "hu": 0.25}),
    "hurdle_log_normal": (
        lambda r, mean: zeros(r, mean * np.exp(0.7 * r.normal(size=NUM_ROWS))),
        {"sigma": 0.7, "hu": 0.25},
    ),
}


@pytest.mark.parametrize("family", CASES)
def test_parameters_begin_at_what_the_rows_say(family: str) -> None:
    simulate, truth = CASES[family]
    random = np.random.default_rng(3)
    x, g = random.normal(size=NUM_ROWS), random.integers(0, NUM_GROUPS, NUM_ROWS)
    y = simulate(random, np.exp(0.5 * x + random.normal(0, 0.6, NUM_GROUPS)[g]))
    rows = {"x": x, "g": g, "y": y}
    spec = DataSpec(NUM_ROWS, {k: FieldSpec((), v.dtype.name) for k, v in rows.items()}, {}, "float64")
    options = options_class("model", "glm")(formula="y ~ x + (1 | g)", family=family)
    prepared, _ = prepare_rows(functools.partial(Glm.prepare, options), spec, rows)
    prior = Glm(options, prepared).prior(prepared)
    coordinates = prior.experimental_default_event_space_bijector()
    origin = jax.tree.map(jnp.zeros_like, coordinates.inverse(prior.sample(seed=jax.random.key(0))))
    for name, expected in truth.items():
        assert float(prepared.arrays[f"first_{name}"]) == pytest.approx(expected, rel=0.1), name
        assert float(coordinates.forward(origin)[name]) == pytest.approx(expected, rel=0.1), name
