"""Regressions, most of them with flat priors and some with predictors in their own units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import DataSpec, Latents, Predictive, Rows
from posteriors.base import Posterior, flat, flat_positive, half_normal, joint, normal

tfd = tfp.distributions


def _eta(latents: Latents, rows: Rows) -> Any:
    """Return the linear predictor, (row,)."""
    return latents["intercept"] + rows["x"] @ latents["slope"]


class _Regression(Posterior):
    """An intercept and slopes with flat priors."""

    num_slopes = 3

    def prior(self, data_spec: DataSpec) -> Any:
        return joint(intercept=flat(data_spec), slope=flat(data_spec, self.num_slopes), **self.more(data_spec))

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        """Return further latents."""
        del spec
        return {}


class LinearFlat(_Regression):
    """100 rows, three standardised predictors."""

    name = pretty_name = "linear"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(1)
        x = rng.normal(size=(100, 3))
        y = 1 + x @ [0.5, -1.0, 2.0] + rng.normal(size=100)
        return {"x": x, "y": y}

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        return {"noise": flat_positive(spec)}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Normal(_eta(latents, inputs), latents["noise"])


class LinearUnscaled(LinearFlat):
    """Scores of 434 children by their mothers' schooling, IQ and age, none of them centred."""

    name = pretty_name = "linear, unscaled"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(2)
        school = rng.uniform(size=434) < 0.79
        iq = rng.normal(96 + 5 * school, 15)
        age = rng.normal(22.8, 2.7, size=434)
        y = 20 + 5 * school + 0.56 * iq + 0.2 * age + rng.normal(0, 18, size=434)
        return {"x": np.stack([school, iq, age], axis=1).astype(float), "y": y}


class LogisticFlat(_Regression):
    """300 rows, five standardised predictors."""

    name = pretty_name = "logistic"
    num_slopes = 5

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(3)
        x = rng.normal(size=(300, 5))
        eta = -0.5 + x @ [1.0, 0.5, 0.0, -0.5, -1.0]
        return {"x": x, "y": (rng.uniform(size=300) < 1 / (1 + np.exp(-eta))).astype(np.int32)}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Bernoulli(logits=_eta(latents, inputs))


class LogisticUnscaled(LogisticFlat):
    """500 wells: whether a household changes its well, by arsenic, distance in metres, and their product."""

    name = pretty_name = "logistic, unscaled"
    num_slopes = 3

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(4)
        arsenic = 0.5 + rng.exponential(1.15, size=500)
        distance = rng.gamma(1.6, 30.0, size=500)
        x = np.stack([arsenic, distance, arsenic * distance], axis=1)
        eta = -0.15 + x @ [0.55, -0.006, -0.0018]
        return {"x": x, "y": (rng.uniform(size=500) < 1 / (1 + np.exp(-eta))).astype(np.int32)}


class PoissonFlat(_Regression):
    """262 counts by a skewed predictor and two indicators, with a logarithmic link."""

    name = pretty_name = "Poisson"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(5)
        x = np.stack([rng.exponential(0.45, 262), rng.uniform(size=262) < 0.6, rng.uniform(size=262) < 0.3], axis=1)
        return {"x": x.astype(float), "y": rng.poisson(np.exp(2.0 + x @ [0.7, -0.5, -0.4])).astype(np.float64)}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Poisson(log_rate=_eta(latents, inputs))


class NegativeBinomial(PoissonFlat):
    """The same predictors with overdispersed counts."""

    name = pretty_name = "negative binomial"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(6)
        x = PoissonFlat.rows()["x"]
        mean = np.exp(2.5 + x @ [0.7, -0.5, -0.4])
        return {"x": x, "y": rng.poisson(mean * rng.gamma(0.8, 1 / 0.8, size=262)).astype(np.float64)}

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        return {"size": flat_positive(spec)}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        size = latents["size"]
        return tfd.NegativeBinomial(
            size, logits=_eta(latents, inputs) - jnp.log(size), require_integer_total_count=False
        )


class StudentT(LinearFlat):
    """A line with outliers: errors with four degrees of freedom, and two predictors that are nearly one."""

    name = pretty_name = "Student t"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(7)
        common = rng.normal(size=(150, 1))
        x = np.concatenate([common + 0.2 * rng.normal(size=(150, 2)), rng.normal(size=(150, 1))], axis=1)
        return {"x": x, "y": 3 + x @ [1.0, 0.5, -1.0] + 2 * rng.standard_t(4, size=150)}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.StudentT(4.0, _eta(latents, inputs), latents["noise"])


class Ordinal(Posterior):
    """Four ordered answers by two predictors: an ordered logistic regression."""

    name = pretty_name = "ordinal"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(8)
        x = rng.normal(size=(250, 2))
        latent = x @ [1.0, -0.6] + rng.logistic(size=250)
        return {"x": x, "y": np.searchsorted([-1.0, 0.5, 2.0], latent).astype(np.int32)}

    def prior(self, data_spec: DataSpec) -> Any:
        return joint(slope=flat(data_spec, 2), first=normal(data_spec, 0.0, 10.0), gap=half_normal(data_spec, 10.0, 2))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        cutpoints = latents["first"] + jnp.concatenate([jnp.zeros_like(latents["gap"][:1]), jnp.cumsum(latents["gap"])])
        return tfd.OrderedLogistic(cutpoints=cutpoints[None], loc=inputs["x"] @ latents["slope"])
