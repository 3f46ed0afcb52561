"""Tables for families, predictors of parameters and outcomes that are known in part, simulated by seed.

NumPy alone, like `simulated`; the same models are written out in `family_models`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy import stats

from tabular.base import Columns, Table

INTERCEPT, SLOPE = "normal(0, 5)", "normal(0, 2)"

_LINE = {"intercept": INTERCEPT, "coefficients": SLOPE}

NUM_ROWS = 240

Draw = Callable[[Generator, np.ndarray, np.ndarray], np.ndarray]


def _expit(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _make(draw: Draw, intercept: float = 0.5) -> Callable[[Generator], Columns]:
    """Return columns x, k and y, of which `draw` gives y from the predictor and x."""

    def columns(r: Generator) -> Columns:
        x, k = r.normal(size=NUM_ROWS).round(3), np.array(["a", "b"])[r.integers(0, 2, NUM_ROWS)]
        return {"x": x, "k": k, "y": draw(r, intercept + 0.6 * x - 0.4 * (k == "b"), x)}

    return columns


def _weibull(r: Generator, eta: np.ndarray, shape: float = 1.5) -> np.ndarray:
    return np.exp(eta) / math.gamma(1 + 1 / shape) * r.weibull(shape, len(eta))


def _counts(r: Generator, eta: np.ndarray, shape: float) -> np.ndarray:
    return r.poisson(r.gamma(shape, np.exp(eta) / shape))


def _positive_counts(draw: Callable[[], np.ndarray]) -> np.ndarray:
    """Return counts of which none is 0."""
    y = draw()
    while (zero := y == 0).any():
        y = np.where(zero, draw(), y)
    return y


def _with_zeros(r: Generator, y: np.ndarray, probability: Any) -> np.ndarray:
    return np.where(r.uniform(size=len(y)) < probability, 0, y)


def _asymmetric_laplace(r: Generator, eta: np.ndarray, quantile: float) -> np.ndarray:
    return eta + r.exponential(1, len(eta)) / quantile * -0.4 + r.exponential(1, len(eta)) / (1 - quantile) * 0.4


def _levels(eta: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return np.array(["low", "mid", "high"])[np.digitize(eta + noise, [-0.5, 1.0])]


def _sequential(r: Generator, eta: np.ndarray) -> np.ndarray:
    stop = r.uniform(size=(2, len(eta))) < _expit(np.array([[-0.3], [0.6]]) - eta)
    return np.array(["low", "mid", "high"])[np.where(stop[0], 0, np.where(stop[1], 1, 2))]


def _survival(draw: Draw) -> Callable[[Generator], Columns]:
    """Return times of which a third or so is censored on the right."""

    def columns(r: Generator) -> Columns:
        made = dict(_make(draw)(r))
        end = r.exponential(4.0, NUM_ROWS)
        is_over = made["y"] <= end
        return made | {"y": np.where(is_over, made["y"], end), "status": np.where(is_over, "none", "right")}

    return columns


def _intervals(r: Generator) -> Columns:
    """Return times known to lie between two visits, some before the first, some after the last, some exactly."""
    made = dict(_make(lambda r, eta, x: np.exp(eta + 0.7 * r.normal(size=len(eta))))(r))
    y, visits = made.pop("y"), np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
    i = np.digitize(y, visits) - 1
    start, end = visits[i], np.r_[visits, np.inf][i + 1]
    status = np.where(start == 0, "left", np.where(np.isinf(end), "right", "interval"))
    exact = r.uniform(size=NUM_ROWS) < 0.3
    status = np.where(exact, "none", status)
    time = np.where(exact, y, np.where(status == "left", end, start))
    return made | {"y": time, "end": np.where(status == "interval", end, time), "status": status}


def _truncated(r: Generator) -> Columns:
    """Return normal outcomes above 0 alone."""
    x = r.normal(size=3 * NUM_ROWS).round(3)
    y = 0.5 + 0.8 * x + r.normal(size=3 * NUM_ROWS)
    return {"x": x[y > 0][:NUM_ROWS], "y": y[y > 0][:NUM_ROWS]}


def _meta(r: Generator) -> Columns:
    error = r.uniform(0.2, 1.0, 60).round(3)
    x = r.normal(size=60).round(3)
    return {"x": x, "error": error, "y": 0.3 + 0.5 * x + np.hypot(0.4, error) * r.normal(size=60)}


def _rounded(r: Generator) -> Columns:
    x = r.normal(size=NUM_ROWS).round(3)
    return {"x": x, "y": (1 + 0.7 * x + 0.6 * r.normal(size=NUM_ROWS)).round()}


def _trials(r: Generator) -> Columns:
    made = _make(lambda r, eta, x: r.binomial(12, r.beta(5 * _expit(eta), 5 * _expit(-eta))))(r)
    return {**made, "n": np.full(NUM_ROWS, 12)}


def _scales(r: Generator) -> Columns:
    """Return normal outcomes whose spread depends on x and on a site."""
    site, x = r.integers(0, 15, 400), r.normal(size=400).round(3)
    sd = np.exp(-0.4 + 0.5 * x + r.normal(0, 0.4, 15)[site])
    level = r.normal(0, 0.6, 15)[site]
    return {"x": x, "site": np.array([f"s{i:02}" for i in range(15)])[site], "y": 1 + 0.8 * x + level + sd * r.normal(size=400)}  # fmt: skip


def _glm(
    family: str, formula: str = "y ~ x + k", priors: Mapping[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    return {"formula": formula, "family": family, "priors": _LINE | dict(priors or {}), **more}


_POSITIVE = "half_normal(2)"
_SHAPE = "gamma(2, 0.5)"
_SHARE = "beta(1, 1)"
_OF_PARAMETER = {"intercept": "normal(0, 1.5)", "coefficients": "normal(0, 1)"}
_ORDER = {"levels": {"y": ["low", "mid", "high"]}}

FAMILY_TABLES: dict[str, Table] = {
    "log-normal": Table(_make(lambda r, eta, x: np.exp(eta + 0.6 * r.normal(size=len(eta)))), "glm", _glm("log_normal", priors={"sigma": _POSITIVE})),
    "exponential": Table(_make(lambda r, eta, x: r.exponential(np.exp(eta))), "glm", _glm("exponential")),
    "censored Weibull": Table(_survival(lambda r, eta, x: _weibull(r, eta)), "glm", _glm("weibull", censored="status", priors={"shape": _SHAPE})),
    "censored exponential": Table(_survival(lambda r, eta, x: r.exponential(np.exp(eta))), "glm", _glm("exponential", censored="status")),
    "intervals": Table(_intervals, "glm", _glm("log_normal", censored="status", interval_end="end", priors={"sigma": _POSITIVE})),
    "inverse Gaussian": Table(_make(lambda r, eta, x: r.wald(np.exp(eta), 3.0)), "glm", _glm("inverse_gaussian", link="log", priors={"shape": _SHAPE})),
    "beta": Table(_make(lambda r, eta, x: r.beta(8 * _expit(eta), 8 * _expit(-eta)).clip(1e-6, 1 - 1e-6)), "glm", _glm("beta", priors={"phi": "gamma(2, 0.1)"})),
    "beta-binomial": Table(_trials, "glm", _glm("beta_binomial", trials="n", priors={"phi": "gamma(2, 0.1)"})),
    "quantile": Table(_make(lambda r, eta, x: _asymmetric_laplace(r, eta, 0.75)), "glm", _glm("asymmetric_laplace", parameters={"quantile": 0.75}, priors={"sigma": _POSITIVE})),
    "zero-inflated": Table(_make(lambda r, eta, x: _with_zeros(r, r.poisson(np.exp(eta)), 0.3)), "glm", _glm("zero_inflated_poisson", priors={"zi": _SHARE})),
    "zero-inflated by x": Table(_make(lambda r, eta, x: _with_zeros(r, _counts(r, eta, 2.0), _expit(-0.8 + 0.9 * x)), 1.2), "glm", _glm("zero_inflated_negative_binomial", priors={"shape": _SHAPE}, parameters={"zi": {"formula": "~ x", "priors": _OF_PARAMETER}})),
    "hurdle Poisson": Table(_make(lambda r, eta, x: _with_zeros(r, _positive_counts(lambda: r.poisson(np.exp(eta))), 0.4)), "glm", _glm("hurdle_poisson", priors={"hu": _SHARE})),
    "hurdle negative binomial": Table(_make(lambda r, eta, x: _with_zeros(r, _positive_counts(lambda: _counts(r, eta, 2.0)), 0.3), 1.0), "glm", _glm("hurdle_negative_binomial", priors={"shape": _SHAPE, "hu": _SHARE})),
    "hurdle gamma": Table(_make(lambda r, eta, x: _with_zeros(r, r.gamma(2.0, np.exp(eta) / 2), _expit(-0.5 - 0.7 * x))), "glm", _glm("hurdle_gamma", priors={"shape": _SHAPE}, parameters={"hu": {"formula": "~ x", "priors": _OF_PARAMETER}})),
    "hurdle log-normal": Table(_make(lambda r, eta, x: _with_zeros(r, np.exp(eta + 0.5 * r.normal(size=len(eta))), 0.25)), "glm", _glm("hurdle_log_normal", priors={"sigma": _POSITIVE, "hu": _SHARE})),
    "sequential": Table(_make(lambda r, eta, x: _sequential(r, eta), 0.0), "glm", {"formula": "y ~ x + k", "family": "sequential", "priors": {"coefficients": SLOPE}}, _ORDER),
    "probit levels": Table(_make(lambda r, eta, x: _levels(eta, r.normal(size=len(eta))), 0.0), "glm", {"formula": "y ~ x + k", "family": "ordinal", "link": "probit", "priors": {"coefficients": SLOPE}}, _ORDER),
    "probit": Table(_make(lambda r, eta, x: (r.uniform(size=len(eta)) < stats.norm.cdf(eta)).astype(int)), "glm", _glm("bernoulli", link="probit")),
    "cloglog": Table(_make(lambda r, eta, x: (r.uniform(size=len(eta)) < -np.expm1(-np.exp(eta))).astype(int), -0.3), "glm", _glm("bernoulli", link="cloglog")),
    "spread by x": Table(_scales, "glm", _glm("normal", "y ~ x + (1 | site)", parameters={"sigma": {"formula": "~ x + (1 | site)", "priors": {**_OF_PARAMETER, "sd": "exponential(2)"}}}, priors={"sd": "exponential(1)"})),
    "truncated": Table(_truncated, "glm", _glm("normal", "y ~ x", truncated={"lower": 0.0}, priors={"sigma": _POSITIVE})),
    "meta-analysis": Table(_meta, "glm", _glm("normal", "y ~ x", known_error="error", priors={"sigma": _POSITIVE})),
    "rounded": Table(_rounded, "glm", _glm("normal", "y ~ x", rounded=1.0, priors={"sigma": _POSITIVE})),
}  # fmt: skip
"""Name -> table."""
