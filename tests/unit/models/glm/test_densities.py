"""Densities in float32 where the usual formulas lose them: large counts, many trials, shapes near those of a normal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.models.glm.families.base import family_of

RANDOM = np.random.default_rng(0)
NUM_ROWS = 50


def value(family: str, y: np.ndarray, eta: np.ndarray, trials: Any = None, **latents: float) -> np.ndarray:
    """Log density with its constant, in the dtype of `eta`."""
    chosen, dtype = family_of(family), eta.dtype
    rows = {"outcome": jnp.asarray(y, np.int32 if chosen.is_discrete else dtype)}
    rows |= {} if trials is None else {"trials": jnp.asarray(trials, np.int32)}
    found = chosen.log_density(jnp.asarray(eta), rows, {k: jnp.asarray(v, dtype) for k, v in latents.items()})
    constant = chosen.constant(y.astype(float), trials)
    return np.asarray(found) + (0 if constant is None else constant.astype(dtype))


def _poisson(mean: float) -> tuple[str, np.ndarray, float, Any, dict[str, float], Callable[..., np.ndarray]]:
    return (
        "poisson",
        RANDOM.poisson(mean, NUM_ROWS),
        np.log(mean),
        None,
        {},
        lambda y, e, t: stats.poisson.logpmf(y, np.exp(e)),
    )


def _negative_binomial(mean: float, shape: float) -> tuple[Any, ...]:
    y = stats.nbinom.rvs(shape, shape / (shape + mean), size=NUM_ROWS, random_state=1)
    exact = lambda y, e, t: stats.nbinom.logpmf(y, shape, shape / (shape + np.exp(e)))  # noqa: E731
    return "negative_binomial", y, np.log(mean), None, {"shape": shape}, exact


def _gamma(shape: float) -> tuple[Any, ...]:
    y = (50 * RANDOM.gamma(shape, 1 / shape, NUM_ROWS)).astype(np.float32)
    exact = lambda y, e, t: stats.gamma.logpdf(y.astype(float), shape, scale=np.exp(e) / shape)  # noqa: E731
    return "gamma", y, np.log(50), None, {"shape": shape}, exact


def _binomial(trials: int) -> tuple[Any, ...]:
    y, of = RANDOM.binomial(trials, 0.3, NUM_ROWS), np.full(NUM_ROWS, trials)
    return "binomial", y, special.logit(0.3), of, {}, lambda y, e, t: stats.binom.logpmf(y, t, special.expit(e))


def _student_t(nu: float) -> tuple[Any, ...]:
    y = RANDOM.standard_normal(NUM_ROWS).astype(np.float32)
    return "student_t", y, 0.0, None, {"sigma": 1.0, "nu": nu}, lambda y, e, t: stats.t.logpdf(y - e, nu)


@pytest.mark.parametrize(
    "case",
    [
        _poisson(3), _poisson(1e6), _negative_binomial(10, 0.5), _negative_binomial(10, 1e6), _negative_binomial(1e4, 30),
        _gamma(2), _gamma(1e5), _binomial(10), _binomial(10**6), _student_t(4), _student_t(1e5),
    ],
    ids=lambda case: f"{case[0]}-{case[4]}-{case[1].mean():.3g}",
)  # fmt: skip
def test_single_precision_keeps_the_density(case: tuple[Any, ...]) -> None:
    family, y, middle, trials, latents, exact = case
    eta = np.full(NUM_ROWS, middle, np.float32)
    expected = exact(y, eta.astype(float), trials)
    np.testing.assert_allclose(value(family, y, eta, trials, **latents), expected, atol=2e-3)


@pytest.mark.parametrize("eta", [-60.0, -1.0, 0.0, 1.5, 30.0, 60.0])
def test_values_and_slopes_are_exact_at_the_edges_and_far_out(eta: float) -> None:
    """No count, no trials, all successes, and predictors at which exponentials nearly overflow."""
    with jax.enable_x64(True):
        y, trials = np.array([0, 0, 5, 3, 0, 700]), np.array([0, 4, 5, 5, 9, 900])
        at = np.full(6, eta)
        failures = (trials - y) * special.log_expit(-at) + y * special.log_expit(at)
        binomial = failures + special.gammaln(trials + 1) - special.gammaln(y + 1) - special.gammaln(trials - y + 1)
        np.testing.assert_allclose(value("binomial", y, at, trials), binomial, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(value("poisson", y, at), stats.poisson.logpmf(y, np.exp(at)), rtol=1e-9, atol=1e-12)
        shape = 3.0
        log_p = -np.logaddexp(0, at - np.log(shape)), -np.logaddexp(0, np.log(shape) - at)
        chosen = special.gammaln(y + shape) - special.gammaln(shape) - special.gammaln(y + 1)
        expected = chosen + shape * log_p[0] + y * log_p[1]
        np.testing.assert_allclose(value("negative_binomial", y, at, shape=shape), expected, rtol=1e-9, atol=1e-12)

        def summed(one: jax.Array, family: str, rows: dict[str, jax.Array]) -> jax.Array:
            return family_of(family).log_density(one, rows, {"shape": jnp.asarray(shape)}).sum()

        mean = np.exp(at)
        slopes = {
            "poisson": y - mean,
            "negative_binomial": y - (y + shape) * special.expit(at - np.log(shape)),
            "binomial": y - trials * special.expit(at),
        }
        for family, slope in slopes.items():
            rows = {"outcome": jnp.asarray(y), "trials": jnp.asarray(trials)}
            np.testing.assert_allclose(jax.grad(summed)(jnp.asarray(at), family, rows), slope, rtol=1e-7, atol=1e-9)


COUNTS = np.array([0, 1, 3, 10, 1000, 10**5, 10**7, 10**9], np.int32)
WIDE = 10.0 ** np.arange(-3, 9)
CHANCES = np.array([1e-9, 1e-5, 0.1, 0.5, 0.9, 1 - 1e-5, 1 - 1e-9])


def _grid(*values: np.ndarray) -> list[np.ndarray]:
    return [each.ravel() for each in np.meshgrid(*values, indexing="ij")]


def _wide(family: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Outcomes, predictors and a parameter or the trials over the whole range, and the log density by SciPy in float64."""
    match family:
        case "poisson":
            y, mean = _grid(COUNTS, WIDE)
            y, eta, other = y, np.log(mean), np.ones_like(mean)
            exact = stats.poisson.logpmf(y, mean)
        case "negative_binomial":
            y, mean, other = _grid(COUNTS, WIDE, WIDE)
            eta = np.log(mean)
            exact = stats.nbinom.logpmf(y, other, other / (other + mean))
        case "binomial":
            share, other, eta = _grid(CHANCES, np.array([1, 1000, 10**9]), np.array([-20, -2, -0.01, 0, 1, 14.0]))
            y = np.round(share * other).astype(np.int32)
            exact = stats.binom.logpmf(y, other, special.expit(eta))
        case "gamma":
            y, mean, other = _grid(WIDE[::3], WIDE[::2], WIDE[::2])
            eta = np.log(mean)
            exact = stats.gamma.logpdf(y, other, scale=mean / other)
        case _:
            y, other = _grid(np.array([0.0, 0.01, 1, 30, 1e4]), 10.0 ** np.arange(-2, 9))
            eta = np.zeros_like(y)
            exact = stats.t.logpdf(y, other)
    return [y, eta, other], exact


@pytest.mark.parametrize("family", ["poisson", "negative_binomial", "binomial", "gamma", "student_t"])
def test_single_precision_loses_little_more_than_the_rounding_of_the_predictor(family: str) -> None:
    chosen = family_of(family)
    name = {"student_t": "nu", "binomial": "trials"}.get(family, "shape")
    given, exact = _wide(family)
    # Both precisions get the same numbers: those of float32.
    given = [each if each.dtype.kind == "i" else each.astype(np.float32) for each in given]

    at = (0,) if family == "binomial" else (0, 1)

    def of_row(eta: jax.Array, other: jax.Array, y: jax.Array) -> jax.Array:
        rows = {"outcome": y[None], "trials": other[None]}
        return chosen.log_density(eta[None], rows, {name: other, "sigma": jnp.ones((), eta.dtype)})[0]

    of_rows = jax.jit(jax.vmap(jax.value_and_grad(of_row, at)))

    def evaluate(dtype: str, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, slopes by the predictor, and slopes by the log of the parameter."""
        y, eta, other = (jnp.asarray(each, each.dtype if each.dtype.kind == "i" else dtype) for each in given)
        value, slopes = of_rows(eta + shift * jnp.maximum(jnp.abs(eta), 1), other, y)
        return (
            np.asarray(value, float),
            np.asarray(slopes[0], float),
            np.asarray(slopes[-1] * other * (len(at) - 1), float),
        )

    y, eta, other = (each.astype(float) for each in given)
    value, of_eta, of_log = evaluate("float64")
    value_single, of_eta_single, of_log_single = evaluate("float32")
    constant = chosen.constant(y, other)
    np.testing.assert_allclose(value + (0 if constant is None else constant), exact, rtol=1e-5, atol=1e-4)
    # Changes of value and slope by the last digit of the value, of the predictor or of the parameter.
    digit = 2.0**-24
    of_digit = digit * (1 + np.abs(value) + np.abs(of_eta) * np.maximum(np.abs(eta), 1) + np.abs(of_log))
    of_slope = digit * (1 + y + np.abs(of_eta)) + np.abs(evaluate("float64", digit)[1] - of_eta)
    assert (np.abs(value_single - value) / of_digit).max() < 16
    assert (np.abs(of_eta_single - of_eta) / of_slope).max() < 16
    # Of a number a thousand scales out, the slope by nu is a difference of terms that are larger by z^2 / nu.
    is_near = (y < 100) | (family != "student_t")
    assert (np.abs(of_log_single - of_log) / of_digit)[is_near].max() < 32
