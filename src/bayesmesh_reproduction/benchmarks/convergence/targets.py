"""The targets: models with their data, as one text that our programs and all other samplers evaluate.

A target is a `bayesmesh.models.base.Model` with rows. To add one, add a row to `TARGETS` and, unless its moments are
exact, find them with `reference`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import DataSpec, Latents, Model, Predictive, Prior, Rows
from bayesmesh_reproduction.benchmarks.convergence import published
from bayesmesh_reproduction.benchmarks.metropolis import target as four_normals

tfd = tfp.distributions

Data = Mapping[str, np.ndarray]


class Options(Settings):
    """No options."""


class Outcomes(Model):
    """A model of the field ``y``, whose likelihood is its predictive density."""

    offers = ()
    options: Options
    pretty_name: ClassVar[str] = "a target of the benchmark"

    def number(self, value: float) -> jax.Array:
        """Return a number in the dtype of the data."""
        return jnp.asarray(value, self.spec.dtype)

    def log_likelihood(self, latents: Latents, rows: Rows) -> jax.Array:
        """Return the log density of each row's outcome, in nats."""
        return self.predict(latents, rows).log_prob(rows["y"])

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return all latents."""
        del rows
        return dict(latents)


def _normal(spec: DataSpec, scale: float, *shape: int, mean: float = 0.0) -> Any:
    zero = jnp.zeros((), spec.dtype)
    return tfd.Sample(tfd.Normal(zero + mean, zero + scale), shape)


def _half_normal(spec: DataSpec, scale: float) -> Any:
    return tfd.HalfNormal(jnp.asarray(scale, spec.dtype))


def _joint(**latents: Any) -> Prior:
    joint: Prior = tfd.JointDistributionNamed(latents)
    return joint


# -- regressions -------------------------------------------------------------------------------------------------------


class Linear(Outcomes):
    """y ~ N(intercept + x . slope, noise^2): normal priors of scales 5 and 2.5, half-normal noise of scale 5."""

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior of intercept, slopes and further latents."""
        (width,) = data_spec.fields["x"].shape
        fixed = {"intercept": _normal(data_spec, 5.0), "slope": _normal(data_spec, 2.5, width)}
        return _joint(**fixed, **self.more(data_spec))

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        """Return further latents."""
        return {"noise": _half_normal(spec, 5.0)}

    def predictor(self, latents: Latents, inputs: Rows) -> jax.Array:
        """Return the linear predictor, (row,)."""
        eta: jax.Array = latents["intercept"] + inputs["x"] @ latents["slope"]
        return eta

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of ``y``."""
        return tfd.Normal(self.predictor(latents, inputs), latents["noise"])


class Student(Linear):
    """A linear regression whose errors have four degrees of freedom."""

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of ``y``."""
        return tfd.StudentT(self.number(4.0), self.predictor(latents, inputs), latents["noise"])


class Logistic(Linear):
    """y ~ Bernoulli(sigmoid(intercept + x . slope))."""

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        """Return no further latents."""
        del spec
        return {}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of ``y``."""
        return tfd.Bernoulli(logits=self.predictor(latents, inputs))


class Poisson(Logistic):
    """y ~ Poisson(exp(intercept + x . slope))."""

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of ``y``."""
        return tfd.Poisson(log_rate=self.predictor(latents, inputs))


class Hierarchical(Linear):
    """A linear regression with an intercept for each of twenty groups, in units of their spread."""

    NUM_GROUPS = 20

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        """Return noise, spread and the standardised intercepts."""
        scales = {"noise": _half_normal(spec, 5.0), "spread": _half_normal(spec, 2.0)}
        return {**scales, "group": _normal(spec, 1.0, self.NUM_GROUPS)}

    def predictor(self, latents: Latents, inputs: Rows) -> jax.Array:
        """Return the linear predictor, (row,)."""
        of_group = latents["spread"] * latents["group"]
        return super().predictor(latents, inputs) + of_group[inputs["group"]]


FAMILIES: Mapping[str, type[Linear]] = {
    "linear": Linear, "student": Student, "logistic": Logistic, "poisson": Poisson, "hierarchical": Hierarchical,
}  # fmt: skip

DESIGNS = ((100, 3, 0.0), (200, 8, 0.5), (400, 12, 0.9), (800, 20, 0.95), (300, 10, 0.98), (1500, 30, 0.9))
"""Rows, columns, and the correlation between any two columns."""


def simulate_regression(family: str, num_rows: int, width: int, correlation: float) -> Data:
    """Return fields ``x`` (row, width), ``y`` (row,) and, for groups, ``group`` (row,) of a simulated regression."""
    rng = np.random.default_rng([num_rows, width, *family.encode()])
    common = rng.normal(size=(num_rows, 1))
    x = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.normal(size=(num_rows, width))
    # The predictor has a standard deviation near 1, whatever the number of columns.
    slope = rng.normal(size=width)
    slope /= np.sqrt(slope @ np.cov(x.T) @ slope)
    eta = 0.5 + x @ slope
    group = np.sort(rng.integers(0, Hierarchical.NUM_GROUPS, num_rows)).astype(np.int32)
    more = {"group": group} if family == "hierarchical" else {}
    if family == "hierarchical":
        eta = eta + rng.normal(0, 0.7, Hierarchical.NUM_GROUPS)[group]
    draw: dict[str, Callable[[], np.ndarray]] = {
        "linear": lambda: eta + rng.normal(size=num_rows),
        "hierarchical": lambda: eta + rng.normal(size=num_rows),
        "student": lambda: eta + rng.standard_t(4, size=num_rows),
        "logistic": lambda: (rng.uniform(size=num_rows) < 1 / (1 + np.exp(-eta))).astype(np.int32),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(np.float64),
    }
    return {"x": x, "y": draw[family](), **more}


class GermanCredit(Outcomes):
    """Bad credit by 24 standardised columns and an intercept behind them, all with standard normal priors."""

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior of the slopes."""
        return _joint(slope=_normal(data_spec, 1.0, *data_spec.fields["x"].shape))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of ``y``."""
        return tfd.Bernoulli(logits=inputs["x"] @ latents["slope"])


def read_german_credit() -> Data:
    """Return Statlog German Credit, numeric (UCI), from the folder that BAYESMESH_MIRROR names.

    Raises:
        FileNotFoundError: it is not there.
    """
    path = published.mirrored("german_credit", "german.data-numeric")
    table = np.array([line.split() for line in path.read_text(encoding="ascii").splitlines()], np.float64)
    x = (table[:, :-1] - table[:, :-1].mean(axis=0)) / table[:, :-1].std(axis=0)
    return {"x": np.column_stack([x, np.ones(len(x))]), "y": (table[:, -1] == 2).astype(np.int32)}


# -- hierarchies and shapes --------------------------------------------------------------------------------------------


class EightSchools(Outcomes):
    """Eight schools (Rubin 1981), effects around their mean in units of their spread."""

    EFFECTS, ERRORS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0), (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior: N(0, 5^2), half-Cauchy of scale 5, and standard normals."""
        spread = tfd.HalfCauchy(jnp.zeros((), data_spec.dtype), 5.0)
        return _joint(mean=_normal(data_spec, 5.0), spread=spread, standardised=_normal(data_spec, 1.0, 8))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of ``y``."""
        effect = latents["mean"] + latents["spread"] * latents["standardised"]
        return tfd.Normal(effect[inputs["school"]], inputs["error"])


def _schools() -> Data:
    return {
        "y": np.array(EightSchools.EFFECTS),
        "error": np.array(EightSchools.ERRORS),
        "school": np.arange(8, dtype=np.int32),
    }


class Shape(Outcomes):
    """A prior, and a row that says nothing about it."""

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return a distribution without latents."""
        del latents
        return tfd.Normal(jnp.zeros_like(inputs["y"]), self.number(1.0))


class Funnel(Shape):
    """Neal's funnel in ten dimensions (2003)."""

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return v ~ N(0, 3^2), and nine x ~ N(0, e^v)."""
        return _joint(
            v=_normal(data_spec, 3.0), x=lambda v: tfd.Sample(tfd.Normal(jnp.zeros_like(v), jnp.exp(v / 2)), 9)
        )


class IllConditioned(Shape):
    """A normal in 100 dimensions, rotated, with standard deviations from 0.1 to 10."""

    @staticmethod
    def factor() -> np.ndarray:
        """Return a square root of the covariance, (100, 100), lower triangular."""
        rotation, _ = np.linalg.qr(np.random.default_rng(16).normal(size=(100, 100)))
        covariance = (rotation * np.logspace(-2, 2, 100)) @ rotation.T
        return np.linalg.cholesky((covariance + covariance.T) / 2)

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the normal."""
        factor = jnp.asarray(self.factor(), data_spec.dtype)
        return _joint(x=tfd.MultivariateNormalTriL(jnp.zeros(100, data_spec.dtype), factor))


class FourNormals(Shape):
    """A number with a wide prior, and the mixture of four normals of the benchmark `metropolis` as its likelihood."""

    PRIOR_SCALE = 30.0

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return a normal."""
        return _joint(x=_normal(data_spec, self.PRIOR_SCALE))

    def log_likelihood(self, latents: Latents, rows: Rows) -> jax.Array:
        """Return the log density of the mixture, once for the only row."""
        weights, means, scales = (
            jnp.asarray(v, self.spec.dtype) for v in (four_normals.WEIGHTS, four_normals.LOCATIONS, four_normals.SCALES)
        )
        parts = jnp.log(weights / scales) - 0.5 * ((latents["x"] - means) / scales) ** 2
        return jnp.broadcast_to(jax.nn.logsumexp(parts), rows["y"].shape)

    @classmethod
    def moments(cls) -> tuple[float, float]:
        """Return mean and standard deviation of the posterior: four normals, each times the prior."""
        weights, means, variances = (
            np.array(v) for v in (four_normals.WEIGHTS, four_normals.LOCATIONS, np.square(four_normals.SCALES))
        )
        total, prior = variances + cls.PRIOR_SCALE**2, cls.PRIOR_SCALE**2
        weights = weights * np.exp(-0.5 * means**2 / total) / np.sqrt(total)
        weights, means, variances = weights / weights.sum(), means * prior / total, variances * prior / total
        mean = weights @ means
        return float(mean), float(np.sqrt(weights @ (variances + means**2) - mean**2))


class TenModes(Shape):
    """A point in the plane with a wide prior, and a likelihood with ten modes on a circle, 7.4 deviations apart."""

    RADIUS, SCALE, PRIOR_SCALE = 6.0, 0.5, 10.0

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return independent normals."""
        return _joint(x=_normal(data_spec, self.PRIOR_SCALE, 2))

    def log_likelihood(self, latents: Latents, rows: Rows) -> jax.Array:
        """Return the log density of the mixture, once for the only row."""
        angle = 2 * np.pi * np.arange(10) / 10
        centres = self.RADIUS * jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1), self.spec.dtype)
        square = jnp.sum((latents["x"][None] - centres) ** 2, axis=1) / self.SCALE**2
        return jnp.broadcast_to(jax.nn.logsumexp(-0.5 * square), rows["y"].shape)

    @classmethod
    def deviation(cls) -> float:
        """Return the posterior standard deviation of a coordinate: that of ten normals times the prior."""
        shrunk = cls.PRIOR_SCALE**2 / (cls.PRIOR_SCALE**2 + cls.SCALE**2)
        return float(np.sqrt((shrunk * cls.RADIUS) ** 2 / 2 + shrunk * cls.SCALE**2))


# -- the table ---------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A posterior to sample.

    Attributes:
        model: ``module:class`` of the model, or its name in the registry.
        read: returns field -> (row, ...), and the constants of the data.
        known: exact mean and standard deviation of quantities, by name; others are in ``reference.csv``.
        experiment: shipped experiment that samples this posterior; measured only when it is named, with its chains, its
            draws and its settings as ours.
        quantities: from the latents of a draw to what is assessed, by name; None for all numbers of all latents.
    """

    model: str
    read: Callable[[], tuple[Data, Mapping[str, float | int]]]
    known: Mapping[str, tuple[float, float]] = {}
    experiment: str = ""
    quantities: Callable[[Latents], Latents] | None = None


def _of(
    model: type[Outcomes], read: Callable[[], Data], known: Mapping[str, tuple[float, float]] | None = None
) -> Target:
    return Target(f"{__name__}:{model.__name__}", lambda: (read(), {}), known or {})


def _no_data() -> Data:
    return {"y": np.zeros(1)}


def _from_source(name: str) -> Callable[[], tuple[Data, Mapping[str, float | int]]]:
    def read() -> tuple[Data, Mapping[str, float | int]]:
        from bayesmesh.config.registry import load_component, options_class

        dataset = load_component("source", name)(options_class("source", name)()).read(Path("nowhere"))
        return dataset.rows, dataset.constants

    return read


def _regressions() -> dict[str, Target]:
    found = {}
    for family, model in FAMILIES.items():
        for design in DESIGNS:
            num_rows, width, correlation = design
            simulate = functools.partial(simulate_regression, family, *design)
            found[f"{family} {num_rows}x{width}, {correlation:g}"] = _of(model, simulate)
    return found


def _ill_conditioned() -> dict[str, tuple[float, float]]:
    sds = np.linalg.norm(IllConditioned.factor(), axis=1)
    return {f"x[{i}]": (0.0, float(sd)) for i, sd in enumerate(sds)}


TARGETS: dict[str, Target] = {
    "german credit": _of(GermanCredit, read_german_credit),
    "eight schools": _of(EightSchools, _schools),
    "hidden Markov": Target("hidden_markov", _from_source("hidden_markov")),
    "four normals": _of(FourNormals, _no_data, {"x": FourNormals.moments()}),
    "funnel": _of(Funnel, _no_data, {"v": (0.0, 3.0)}),
    "ill-conditioned": _of(IllConditioned, _no_data, _ill_conditioned()),
    "ten modes": _of(TenModes, _no_data, {f"x[{i}]": (0.0, TenModes.deviation()) for i in range(2)}),
    **_regressions(),
    "digits": Target("softmax_regression", _from_source("digits")),
    "MNIST": Target("softmax_regression", published.read_mnist, experiment="mnist"),
    "MovieLens": Target(
        "matrix_factorization", published.read_movielens, experiment="movielens", quantities=published.cells_of
    ),
}
"""Name -> target, in the order of the table."""
