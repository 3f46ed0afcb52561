"""Posteriors whose moments are known: in closed form, by enumeration, or from a reference with its standard error.

The truth is computed with NumPy and SciPy alone, and never from the model's own code.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml
from scipy import stats
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.base import Model
from cases import Case, make_case

tfd = tfp.distributions

Draws = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Truth:
    """Moments of a posterior.

    Attributes:
        mean, sd: (coordinate,).
        error: standard error of `mean`, (coordinate,); 0 where it is exact.
        quantities: from latents (chain, draw, ...) to (chain, draw, coordinate).
    """

    mean: np.ndarray
    sd: np.ndarray
    error: np.ndarray
    quantities: Callable[[Draws], np.ndarray]


class OfOutcome(Model):
    """A model whose likelihood is the density of the field `y` under `predict`."""

    pretty_name = "of tests"

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return self.predict(latents, rows).log_prob(rows["y"].astype(self.spec.dtype))

    def outcome(self, rows: Any) -> jax.Array:
        return rows["y"]

    def summaries(self, latents: Any, rows: Any) -> Any:
        return dict(latents)

    def number(self, spec: Any, value: float) -> jax.Array:
        return jnp.asarray(value, spec.dtype)


def case_of(name: str, model_class: type[Model], rows: Mapping[str, np.ndarray]) -> Case:
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    return Case(name, "tests", model_class, Settings(), DataSpec(len(rows["y"]), fields, {}, "float64"), rows)


def stacked(draws: Draws) -> np.ndarray:
    """All latents by name, side by side."""
    return np.concatenate([draws[k].reshape(*draws[k].shape[:2], -1) for k in sorted(draws)], axis=2)


def exact(mean: Any, sd: Any, quantities: Callable[[Draws], np.ndarray] = stacked) -> Truth:
    mean = np.atleast_1d(mean)
    return Truth(mean, np.broadcast_to(sd, mean.shape), np.zeros(mean.shape), quantities)


# -- closed forms ------------------------------------------------------------------------------------------------------


def normal_mean() -> tuple[Case, Truth]:
    case = make_case("gaussian", prior_scale=0.4)
    noise, x = case.spec.constants["noise_scale"], case.rows["x"]
    precision = len(x) / noise**2 + 1 / 0.4**2
    return case, exact(x.sum(axis=0) / noise**2 / precision, precision**-0.5)


class Linear(OfOutcome):
    """y ~ N(x . slopes, 0.7^2), slopes ~ N(0, 2^2)."""

    def prior(self, spec: Any) -> Any:
        two = self.number(spec, 2)
        return tfd.JointDistributionNamed({"slopes": tfd.Sample(tfd.Normal(0 * two, two), spec.fields["x"].shape)})

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Normal(inputs["x"] @ latents["slopes"], self.number(self.spec, 0.7))


def linear_regression() -> tuple[Case, Truth]:
    generator = np.random.default_rng(1)
    x = generator.standard_normal((40, 4)) @ np.array(
        [[1, 0.9, 0, 0], [0, 0.5, 0, 0], [0, 0, 3, 0], [0, 0, 0, 0.1]], dtype=np.float64
    )
    y = x @ [1.0, -1.0, 0.5, 2.0] + 0.7 * generator.standard_normal(40)
    covariance = np.linalg.inv(x.T @ x / 0.7**2 + np.eye(4) / 2**2)
    return case_of("linear_regression", Linear, {"x": x, "y": y}), exact(
        covariance @ x.T @ y / 0.7**2, np.sqrt(np.diag(covariance))
    )


class BetaBinomial(OfOutcome):
    """y ~ Binomial(trials, rate), rate ~ Beta(2, 5)."""

    def prior(self, spec: Any) -> Any:
        return tfd.JointDistributionNamed({"rate": tfd.Beta(self.number(spec, 2), self.number(spec, 5))})

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Binomial(inputs["trials"].astype(self.spec.dtype), probs=latents["rate"])


def beta_binomial() -> tuple[Case, Truth]:
    rows = {"trials": np.array([4, 7, 5, 9, 3]), "y": np.array([1, 0, 2, 1, 0])}
    posterior = stats.beta(2 + rows["y"].sum(), 5 + (rows["trials"] - rows["y"]).sum())
    return case_of("beta_binomial", BetaBinomial, rows), exact(posterior.mean(), posterior.std())


PERSISTENCE, SHOCK, NOISE = 0.9, 0.6, 0.8


class LocalLevel(OfOutcome):
    """y[t] ~ N(level[t], NOISE^2) of a level that reverts to 0, written with its standard normal shocks."""

    def prior(self, spec: Any) -> Any:
        one = self.number(spec, 1)
        return tfd.JointDistributionNamed({"shocks": tfd.Sample(tfd.Normal(0 * one, one), (spec.num_rows,))})

    def predict(self, latents: Any, inputs: Any) -> Any:
        def step(level: jax.Array, shock: jax.Array) -> tuple[jax.Array, jax.Array]:
            level = PERSISTENCE * level + SHOCK * shock
            return level, level

        _, levels = jax.lax.scan(step, jnp.zeros((), self.spec.dtype), latents["shocks"])
        return tfd.Normal(levels[inputs["time"]], self.number(self.spec, NOISE))


def kalman_filter() -> tuple[Case, Truth]:
    """Filter forwards and smooth backwards (Rauch, Tung and Striebel 1965)."""
    generator, num_steps = np.random.default_rng(2), 15
    y = 1.5 * np.sin(np.arange(num_steps) / 2) + 0.5 * generator.standard_normal(num_steps)
    mean, variance = np.zeros(num_steps), np.zeros(num_steps)
    ahead_mean, ahead_variance = np.zeros(num_steps), np.zeros(num_steps)
    for t in range(num_steps):
        ahead_mean[t] = PERSISTENCE * mean[t - 1] if t else 0.0
        ahead_variance[t] = PERSISTENCE**2 * (variance[t - 1] if t else 0.0) + SHOCK**2
        gain = ahead_variance[t] / (ahead_variance[t] + NOISE**2)
        mean[t], variance[t] = ahead_mean[t] + gain * (y[t] - ahead_mean[t]), (1 - gain) * ahead_variance[t]
    for t in reversed(range(num_steps - 1)):
        gain = PERSISTENCE * variance[t] / ahead_variance[t + 1]
        mean[t] += gain * (mean[t + 1] - ahead_mean[t + 1])
        variance[t] += gain**2 * (variance[t + 1] - ahead_variance[t + 1])
    ages = np.subtract.outer(np.arange(num_steps), np.arange(num_steps))
    to_levels = np.where(ages >= 0, SHOCK * PERSISTENCE ** np.maximum(ages, 0), 0.0)
    case = case_of("kalman_filter", LocalLevel, {"time": np.arange(num_steps), "y": y})
    return case, exact(mean, np.sqrt(variance), lambda draws: draws["shocks"] @ to_levels.T)


WEIGHT, WIDE = 0.6, 3.0


class Mixture(OfOutcome):
    """y ~ N(centre, 1) with probability WEIGHT, else N(0, WIDE^2); centre ~ N(0, 2^2). The component is summed out."""

    def prior(self, spec: Any) -> Any:
        two = self.number(spec, 2)
        return tfd.JointDistributionNamed({"centre": tfd.Normal(0 * two, two)})

    def predict(self, latents: Any, inputs: Any) -> Any:
        shape, dtype = inputs["y"].shape, self.spec.dtype
        means = jnp.stack([jnp.broadcast_to(latents["centre"], shape), jnp.zeros(shape, dtype)], axis=-1)
        weights = tfd.Categorical(probs=jnp.asarray([WEIGHT, 1 - WEIGHT], dtype))
        return tfd.MixtureSameFamily(weights, tfd.Normal(means, jnp.asarray([1, WIDE], dtype)))


def enumerated_mixture() -> tuple[Case, Truth]:
    """Add up the conjugate posteriors of all 256 ways in which eight rows can belong to the components."""
    y = np.array([2.1, 1.4, 2.9, -3.5, 1.7, 4.8, 0.3, -0.9])
    logs, means, variances = [], [], []
    for is_narrow in map(np.array, itertools.product([True, False], repeat=len(y))):
        mine = y[is_narrow]
        joint = stats.multivariate_normal(np.zeros(len(mine)), np.eye(len(mine)) + 4.0) if len(mine) else None
        log = stats.norm(0, WIDE).logpdf(y[~is_narrow]).sum() + (joint.logpdf(mine) if joint else 0.0)
        logs.append(log + len(mine) * np.log(WEIGHT) + (len(y) - len(mine)) * np.log(1 - WEIGHT))
        variances.append(1 / (len(mine) + 1 / 4))
        means.append(variances[-1] * mine.sum())
    weight = np.exp(np.array(logs) - max(logs))
    weight, means, variances = weight / weight.sum(), np.array(means), np.array(variances)
    mean = weight @ means
    sd = np.sqrt(weight @ (variances + means**2) - mean**2)
    return case_of("enumerated_mixture", Mixture, {"y": y}), exact(mean, sd)


CLOSED_FORMS = {
    f.__name__: f for f in (normal_mean, linear_regression, beta_binomial, kalman_filter, enumerated_mixture)
}

# -- references with standard errors -----------------------------------------------------------------------------------


def reference(name: str, quantities: Callable[[Draws], np.ndarray]) -> Truth:
    stored = yaml.safe_load(Path(__file__).with_name("references.yaml").read_text(encoding="utf-8"))[name]
    return Truth(*(np.array(stored[key]) for key in ("mean", "sd", "error")), quantities)


class Logistic(OfOutcome):
    """y ~ Bernoulli(sigmoid(x . slopes)), slopes ~ N(0, 1)."""

    def prior(self, spec: Any) -> Any:
        one = self.number(spec, 1)
        return tfd.JointDistributionNamed({"slopes": tfd.Sample(tfd.Normal(0 * one, one), spec.fields["x"].shape)})

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Bernoulli(logits=inputs["x"] @ latents["slopes"])


def german_credit(mirror: Path) -> tuple[Case, Truth]:
    """Columns standardised by the population's deviation, an intercept behind them, and 1 for bad credit."""
    with (mirror / "german_credit" / "german_numeric_1000x25.csv").open(newline="") as file:
        table = np.array([[float(v) for v in row] for row in csv.reader(file)])
    x = (table[:, :24] - table[:, :24].mean(axis=0)) / table[:, :24].std(axis=0)
    rows = {"x": np.column_stack([x, np.ones(len(x))]), "y": (table[:, 24] == 2).astype(np.int32)}
    return case_of("german_credit", Logistic, rows), reference("german_credit", stacked)


class Schools(OfOutcome):
    """Eight schools, centred: effects ~ N(centre, exp(log_spread)^2), centre ~ N(0, 10^2), log_spread ~ N(5, 1)."""

    def prior(self, spec: Any) -> Any:
        def effects(centre: jax.Array, log_spread: jax.Array) -> Any:
            return tfd.Sample(tfd.Normal(centre, jnp.exp(log_spread)), (8,))

        zero = self.number(spec, 0)
        normals = {"centre": tfd.Normal(zero, zero + 10), "log_spread": tfd.Normal(zero + 5, zero + 1)}
        return tfd.JointDistributionNamed({**normals, "effects": effects})

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Normal(latents["effects"][inputs["school"]], inputs["error"].astype(self.spec.dtype))


def eight_schools() -> tuple[Case, Truth]:
    rows = {
        "school": np.arange(8),
        "error": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
        "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
    }
    return case_of("eight_schools", Schools, rows), reference("eight_schools", stacked)
