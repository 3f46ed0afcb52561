"""The models of `family_tables`, written out with NumPyro and densities from their formulas, without the package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import betaln, expit, gammaln, log_ndtr, logsumexp, ndtr

Columns = Mapping[str, np.ndarray]


def line(t: Columns, *names: str, prefix: str = "", intercept: Any = (0.0, 5.0), slope: float = 2.0) -> Any:
    """Return a linear predictor, with the prior of its intercept where all columns have their means."""
    columns = {name: (t[name] == "b" if name == "k" else t[name]).astype(float) for name in names}
    labels = {name: f"{prefix}b_k[b]" if name == "k" else f"{prefix}b_{name}" for name in names}
    means = np.array([v.mean() for v in columns.values()])
    design = np.stack(list(columns.values()), 1) - means
    b = numpyro.sample(f"{prefix}b", dist.Normal(0, slope).expand((len(names),)))
    for name, value in zip(names, b, strict=True):
        numpyro.deterministic(labels[name], value)
    eta = design @ b
    if intercept is not None:
        a = numpyro.sample(f"{prefix}a", dist.Normal(*intercept))
        numpyro.deterministic(f"{prefix}intercept_at_zero", a - means @ b)
        eta = eta + a
    return eta


def _positive(name: str) -> Any:
    return numpyro.sample(name, dist.HalfNormal(2.0))


def _shape(name: str, rate: float = 0.5) -> Any:
    return numpyro.sample(name, dist.Gamma(2.0, rate))


def _share(name: str) -> Any:
    return numpyro.sample(name, dist.Beta(1.0, 1.0))


def _add(log_density: Any) -> None:
    numpyro.factor("rows", jnp.sum(log_density))


Model = Callable[[Columns], None]


def _log_normal(t: Columns) -> None:
    eta, sigma = line(t, "x", "k"), _positive("sigma")
    numpyro.sample("y", dist.LogNormal(eta, sigma), obs=t["y"])


def _exponential(t: Columns) -> None:
    eta = line(t, "x", "k")
    _add(-eta - t["y"] * jnp.exp(-eta))


def _weibull(t: Columns) -> None:
    eta, shape = line(t, "x", "k"), _shape("shape")
    log_scale = eta - gammaln(1 + 1 / shape)
    z = shape * (jnp.log(t["y"]) - log_scale)
    _add(jnp.where(t["status"] == "none", jnp.log(shape) - jnp.log(t["y"]) + z, 0.0) - jnp.exp(z))


def _censored_exponential(t: Columns) -> None:
    eta = line(t, "x", "k")
    _add(jnp.where(t["status"] == "none", -eta, 0.0) - t["y"] * jnp.exp(-eta))


def _log_difference(high: Any, low: Any) -> Any:
    """Return the log of the mass of the standard normal distribution between two points."""
    flip = low > 0
    high, low = jnp.where(flip, -low, high), jnp.where(flip, -high, low)
    return log_ndtr(high) + jnp.log1p(-jnp.exp(log_ndtr(low) - log_ndtr(high)))


def _intervals(t: Columns) -> None:
    eta, sigma = line(t, "x", "k"), _positive("sigma")
    z, is_interval = (np.log(t["y"]) - eta) / sigma, t["status"] == "interval"
    end = jnp.where(is_interval, (np.log(t["end"]) - eta) / sigma, z + 1)
    exact = -0.5 * z**2 - jnp.log(sigma * t["y"]) - 0.5 * math.log(2 * math.pi)
    cases = [t["status"] == "none", t["status"] == "left", t["status"] == "right"]
    _add(jnp.select(cases, [exact, log_ndtr(z), log_ndtr(-z)], _log_difference(end, z)))


def _inverse_gaussian(t: Columns) -> None:
    eta, shape = line(t, "x", "k"), _shape("shape")
    y, mean = t["y"], jnp.exp(eta)
    _add(0.5 * jnp.log(shape / (2 * math.pi * y**3)) - shape * (y - mean) ** 2 / (2 * mean**2 * y))


def _beta(t: Columns) -> None:
    eta, phi = line(t, "x", "k"), _shape("phi", 0.1)
    a, b = phi * expit(eta), phi * expit(-eta)
    _add((a - 1) * np.log(t["y"]) + (b - 1) * np.log1p(-t["y"]) - betaln(a, b))


def _beta_binomial(t: Columns) -> None:
    eta, phi = line(t, "x", "k"), _shape("phi", 0.1)
    a, b = phi * expit(eta), phi * expit(-eta)
    _add(betaln(t["y"] + a, t["n"] - t["y"] + b) - betaln(a, b))


def _quantile(t: Columns) -> None:
    eta, sigma = line(t, "x", "k"), _positive("sigma")
    z = (t["y"] - eta) / sigma
    _add(-jnp.log(sigma) - z * (0.75 - (z < 0)))


def _log_poisson(y: Any, eta: Any) -> Any:
    return y * eta - jnp.exp(eta) - gammaln(y + 1)


def _log_negative_binomial(y: Any, eta: Any, shape: Any) -> Any:
    mean = jnp.exp(eta)
    return gammaln(y + shape) - gammaln(shape) - gammaln(y + 1) + shape * jnp.log(shape / (shape + mean)) + y * jnp.log(mean / (shape + mean))  # fmt: skip


def _inflate(y: Any, log_count: Any, share: Any) -> Any:
    both = jnp.stack([jnp.broadcast_to(jnp.log(share), y.shape), jnp.log1p(-share) + log_count])
    return jnp.where(y == 0, logsumexp(both, axis=0), jnp.log1p(-share) + log_count)


def _hurdle(y: Any, log_positive: Any, share: Any) -> Any:
    return jnp.where(y == 0, jnp.log(share), jnp.log1p(-share) + log_positive)


def _zero_inflated(t: Columns) -> None:
    eta, zi = line(t, "x", "k"), _share("zi")
    _add(_inflate(t["y"], _log_poisson(t["y"], eta), zi))


def _zero_inflated_by_x(t: Columns) -> None:
    eta, shape = line(t, "x", "k"), _shape("shape")
    zi = expit(line(t, "x", prefix="zi_", intercept=(0.0, 1.5), slope=1.0))
    _add(_inflate(t["y"], _log_negative_binomial(t["y"], eta, shape), zi))


def _hurdle_poisson(t: Columns) -> None:
    eta, hu = line(t, "x", "k"), _share("hu")
    _add(_hurdle(t["y"], _log_poisson(t["y"], eta) - jnp.log(-jnp.expm1(-jnp.exp(eta))), hu))


def _hurdle_negative_binomial(t: Columns) -> None:
    eta, shape, hu = line(t, "x", "k"), _shape("shape"), _share("hu")
    zero = shape * jnp.log(shape / (shape + jnp.exp(eta)))
    _add(_hurdle(t["y"], _log_negative_binomial(t["y"], eta, shape) - jnp.log(-jnp.expm1(zero)), hu))


def _hurdle_gamma(t: Columns) -> None:
    eta, shape = line(t, "x", "k"), _shape("shape")
    hu = expit(line(t, "x", prefix="hu_", intercept=(0.0, 1.5), slope=1.0))
    y = np.where(t["y"] > 0, t["y"], 1.0)
    rate = shape * jnp.exp(-eta)
    _add(_hurdle(t["y"], shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * np.log(y) - rate * y, hu))


def _hurdle_log_normal(t: Columns) -> None:
    eta, sigma, hu = line(t, "x", "k"), _positive("sigma"), _share("hu")
    y = np.where(t["y"] > 0, t["y"], 1.0)
    _add(_hurdle(t["y"], dist.LogNormal(eta, sigma).log_prob(y), hu))


def _codes(t: Columns) -> np.ndarray:
    return np.array([["low", "mid", "high"].index(v) for v in t["y"]])


def _probit_levels(t: Columns) -> None:
    eta = line(t, "x", "k", intercept=None)
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    for level, value in zip(("low", "mid", "high"), p, strict=True):
        numpyro.deterministic(f"baseline[{level}]", value)
    cuts = jax.scipy.special.ndtri(jnp.cumsum(p)[:-1])
    up_to = jnp.concatenate([jnp.zeros((len(eta), 1)), ndtr(cuts - eta[:, None]), jnp.ones((len(eta), 1))], 1)
    _add(jnp.log(jnp.take_along_axis(jnp.diff(up_to, axis=1), _codes(t)[:, None], 1)))


def _sequential(t: Columns) -> None:
    eta = line(t, "x", "k", intercept=None)
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    for level, value in zip(("low", "mid", "high"), p, strict=True):
        numpyro.deterministic(f"baseline[{level}]", value)
    # The probability of stopping at a level, given that it was reached.
    stops = jax.scipy.special.logit(p[:-1] / jnp.array([1.0, 1 - p[0]]))
    stop, go = jax.nn.log_sigmoid(stops - eta[:, None]), jax.nn.log_sigmoid(eta[:, None] - stops)
    levels = jnp.stack([stop[:, 0], go[:, 0] + stop[:, 1], go[:, 0] + go[:, 1]], 1)
    _add(jnp.take_along_axis(levels, _codes(t)[:, None], 1))


def _probit(t: Columns) -> None:
    eta = line(t, "x", "k")
    _add(jnp.where(t["y"] == 1, log_ndtr(eta), log_ndtr(-eta)))


def _cloglog(t: Columns) -> None:
    eta = line(t, "x", "k")
    _add(jnp.where(t["y"] == 1, jnp.log(-jnp.expm1(-jnp.exp(eta))), -jnp.exp(eta)))


def _effects(name: str, values: np.ndarray, rate: float) -> Any:
    code = np.unique(values, return_inverse=True)[1]
    sd = numpyro.sample(f"{name}[intercept]", dist.Exponential(rate))
    return sd * numpyro.sample(f"{name} z", dist.Normal(0, 1).expand((int(code.max()) + 1,)))[code]


def _spread_by_x(t: Columns) -> None:
    mean = line(t, "x") + _effects("sd_site", t["site"], 1.0)
    log_sd = line(t, "x", prefix="sigma_", intercept=(0.0, 1.5), slope=1.0)
    log_sd = log_sd + _effects("sigma_sd_site", t["site"], 2.0)
    numpyro.sample("y", dist.Normal(mean, jnp.exp(log_sd)), obs=t["y"])


def _truncated(t: Columns) -> None:
    eta, sigma = line(t, "x"), _positive("sigma")
    _add(dist.Normal(eta, sigma).log_prob(t["y"]) - log_ndtr(eta / sigma))


def _meta(t: Columns) -> None:
    eta, sigma = line(t, "x"), _positive("sigma")
    numpyro.sample("y", dist.Normal(eta, jnp.hypot(sigma, t["error"])), obs=t["y"])


def _rounded(t: Columns) -> None:
    eta, sigma = line(t, "x"), _positive("sigma")
    _add(_log_difference((t["y"] + 0.5 - eta) / sigma, (t["y"] - 0.5 - eta) / sigma))


FAMILY_MODELS: dict[str, Model] = {
    "log-normal": _log_normal, "exponential": _exponential, "censored Weibull": _weibull, "censored exponential": _censored_exponential,
    "intervals": _intervals, "inverse Gaussian": _inverse_gaussian, "beta": _beta, "beta-binomial": _beta_binomial, "quantile": _quantile,
    "zero-inflated": _zero_inflated, "zero-inflated by x": _zero_inflated_by_x, "hurdle Poisson": _hurdle_poisson,
    "hurdle negative binomial": _hurdle_negative_binomial, "hurdle gamma": _hurdle_gamma, "hurdle log-normal": _hurdle_log_normal,
    "sequential": _sequential, "probit levels": _probit_levels, "probit": _probit, "cloglog": _cloglog, "spread by x": _spread_by_x,
    "truncated": _truncated, "meta-analysis": _meta, "rounded": _rounded,
}  # fmt: skip
"""Table -> its model."""
