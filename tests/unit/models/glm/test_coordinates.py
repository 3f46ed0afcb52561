"""Coordinates of linear models: a map with its Jacobian, in which posteriors of many rows are nearly standard normal."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.models.glm.model import Glm
from cases import condensed
from unit.models.glm.test_model import draw, make

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "correlated": ("growth ~ age + species + (1 + mass | site)", "normal", {"priors": {"species": "laplace(0, 1)"}}),
    "two groups": (
        "leaves ~ 0 + age + (1 + age || site) + (1 | species)", "poisson", {"centred": ["species"], "local_group": "site"},
    ),
    "non-centred": ("growth ~ age + (1 | site)", "student_t", {"centred": False, "priors": {"sd": "uniform(0, 9)"}}),
    "levels": ("stage ~ age + (1 | site)", "ordinal", {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_map_and_jacobian(case: str) -> None:
    formula, family, options = CASES[case]
    model, _, _ = make(formula, family, **options)
    latents = draw(model)
    bijector = model.prior(model.spec).experimental_default_event_space_bijector()
    x = bijector.inverse(latents)
    again = bijector.forward(x)
    assert set(again) == set(latents)
    for name, value in latents.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-7, atol=1e-9)
    if "baseline" in latents or any(name.startswith("correlation") for name in latents):
        # These lie on surfaces, whose Jacobian is that of their own bijector: compare how the whole changes with the rest.
        moving = [name for name in x if name != "baseline" and not name.startswith("correlation")]
    else:
        moving = list(x)
    flat, unflatten = jax.flatten_util.ravel_pytree({name: x[name] for name in moving})

    def forward(flat: jax.Array) -> jax.Array:
        found = bijector.forward({**x, **unflatten(flat)})
        return jax.flatten_util.ravel_pytree({name: found[name] for name in moving})[0]

    jacobian = jax.jit(jax.jacobian(forward))

    def expected(flat: jax.Array) -> float:
        return float(np.linalg.slogdet(jacobian(flat))[1])

    def found(flat: jax.Array) -> float:
        return float(bijector.forward_log_det_jacobian({**x, **unflatten(flat)}))

    moved = flat + 0.1
    difference = expected(moved) - expected(flat)
    np.testing.assert_allclose(found(moved) - found(flat), difference, rtol=1e-6, atol=1e-8)
    if moving == list(x):
        np.testing.assert_allclose(found(flat), expected(flat), rtol=1e-6)


def test_effects_of_normal_outcomes_are_standard_normal_given_the_rest() -> None:
    model, rows, _ = make("growth ~ age + (1 + mass | site)", local_group="none")
    prior = model.prior(model.spec)
    bijector = prior.experimental_default_event_space_bijector()
    x = bijector.inverse(draw(model))

    def log_density(effects: jax.Array) -> jax.Array:
        moved = {**x, "effects_site": effects}
        latents = bijector.forward(moved)
        jacobian = bijector.forward_log_det_jacobian(moved)
        return prior.log_prob(latents) + jacobian + model.log_likelihood(latents, rows).sum()

    at = jnp.zeros_like(x["effects_site"])
    gradient, hessian = jax.jit(lambda at: (jax.grad(log_density)(at), jax.hessian(log_density)(at)))(at)
    np.testing.assert_allclose(gradient, 0, atol=1e-4)
    np.testing.assert_allclose(np.asarray(hessian).reshape(at.size, at.size), -np.eye(at.size), atol=1e-4)


@pytest.mark.parametrize(("outcome", "family"), [("growth", "normal"), ("leaves", "poisson")])
def test_posteriors_of_many_rows_are_near_the_origin(outcome: str, family: str) -> None:
    model, rows, _ = make(f"{outcome} ~ age + species + (1 | site)", family, num_rows=2000)
    prior = model.prior(model.spec)
    bijector = prior.experimental_default_event_space_bijector()
    start = jax.tree.map(jnp.zeros_like, bijector.inverse(draw(model)))
    # The sites do not differ in their numbers of leaves: of a deviation near 0 the posterior is not normal.
    moving = {name: value for name, value in start.items() if family == "normal" or name != "sd_site"}
    zero, unflatten = jax.flatten_util.ravel_pytree(moving)

    @jax.jit
    def derivatives(flat: jax.Array) -> tuple[jax.Array, jax.Array]:
        def log_density(flat: jax.Array) -> jax.Array:
            x = {**start, **unflatten(flat)}
            latents = bijector.forward(x)
            jacobian = bijector.forward_log_det_jacobian(x)
            return prior.log_prob(latents) + jacobian + model.log_likelihood(latents, rows).sum()

        return jax.grad(log_density)(flat), jax.hessian(log_density)(flat)

    gradient, hessian = derivatives(zero)
    precision = -np.asarray(hessian)
    assert np.abs(np.linalg.solve(precision, gradient)).max() < 1
    values = np.linalg.eigvalsh(precision)
    assert 0.3 < values.min() < values.max() < 3


@pytest.mark.parametrize("between", ["|", "||"])
def test_integrated_posteriors_of_few_rows_a_level_are_near_the_origin_on_unit_scale(between: str) -> None:
    # Levels with fewer rows than effects tell little each: 40 iterations of expectation-maximisation end 0.8 standard deviations away.
    num_levels, num_rows = 2000, 8000
    random = np.random.default_rng(5)
    columns = {name: random.normal(size=num_rows) for name in ("x", "z", "w", "v")}
    codes = random.integers(0, num_levels, num_rows).astype(np.int32)
    effects = random.normal(size=(num_levels, 5)) * [0.5, 0.3, 0.4, 0.5, 0.6]
    y = effects[codes, 0] + sum(effects[codes, i + 1] * x for i, x in enumerate(columns.values()))
    table = {**columns, "g": codes, "y": y + random.normal(size=num_rows)}
    levels = Variable("category", levels=tuple(map(str, range(num_levels))))
    fields = {name: FieldSpec((), v.dtype.name) for name, v in table.items()}
    spec = DataSpec(num_rows, fields, {}, "float64", variables={"g": levels})
    own = options_class("model", "glm")(formula=f"y ~ x + z + (1 + x + z + w + v {between} g)")
    _, _, few, rows = condensed(own, spec, table)
    model = Glm(own, few)
    prior, arrays = model.prior(few), {name: jnp.asarray(v) for name, v in rows.items()}
    bijector = prior.experimental_default_event_space_bijector()
    origin = jax.tree.map(jnp.zeros_like, bijector.inverse(prior.sample(seed=jax.random.key(0))))
    zero, unflatten = jax.flatten_util.ravel_pytree(origin)

    @jax.jit
    def gradient(flat: jax.Array) -> jax.Array:
        def log_density(flat: jax.Array) -> jax.Array:
            latents = bijector.forward(unflatten(flat))
            jacobian = bijector.forward_log_det_jacobian(unflatten(flat))
            return prior.log_prob(latents) + jacobian + model.log_likelihood(latents, arrays).sum()

        return jax.grad(log_density)(flat)

    precision = -np.stack([(gradient(zero + h) - gradient(zero - h)) / 2e-3 for h in 1e-3 * np.eye(zero.size)])
    covariance = np.linalg.inv((precision + precision.T) / 2)
    away = covariance @ np.asarray(gradient(zero))
    assert np.abs(away).max() < 0.5
    of_each = unflatten(jnp.sqrt(np.diagonal(covariance)))
    # The unit of correlations is that of the effect of which rows tell least.
    assert all(0.4 < sd < 1.4 for sd in of_each.pop("correlation_g", np.ones(1)))
    for name, sd in of_each.items():
        assert 0.8 < sd.min() <= sd.max() < 1.25, name


@pytest.mark.parametrize(
    ("unit", "sd", "sigma", "weight"), [(1e-3, 0.0, 1e-4, 1.0), (1.0, 1.0, 1e-3, 1.0), (1.0, 0.3, 1.0, 0.1)]
)
def test_the_quick_fit_finds_sigma(unit: float, sd: float, sigma: float, weight: float) -> None:
    random = np.random.default_rng(2)
    codes = np.repeat(np.arange(100), 10).astype(np.int32)
    x = random.normal(size=1000)
    y = unit * x + sd * random.normal(size=100)[codes] + sigma * random.normal(size=1000)
    table = {"x": x, "g": codes, "w": np.full(1000, weight), "y": y}
    fields = {name: FieldSpec((), v.dtype.name) for name, v in table.items()}
    levels = Variable("category", levels=tuple(map(str, range(100))))
    spec = DataSpec(1000, fields, {}, "float64", variables={"g": levels})
    own = options_class("model", "glm")(formula="y ~ x" + (" + (1 | g)" if sd else ""), weights="w")
    prepared, _ = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    at, error = prepared.arrays["first_sigma"]
    assert np.exp(at) == pytest.approx(sigma, rel=0.1)
    assert 0.7 < error * np.sqrt(2 * weight * 1000) < 1.6
    assert prepared.arrays["least_squares"][1, -1] * np.sqrt(weight * 1000) == pytest.approx(sigma, rel=0.15)
