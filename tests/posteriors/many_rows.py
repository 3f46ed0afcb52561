"""Regressions on 10,000 rows with predictors of unit size, for measurements of time; they have no reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import DataSpec, Latents, Predictive, Rows
from posteriors.base import Posterior, half_normal, joint, normal

tfd = tfp.distributions

NUM_ROWS, NUM_SLOPES = 10_000, 8


class _ManyRows(Posterior):
    """An intercept and eight slopes; subclasses say how outcomes scatter around the linear predictor."""

    has_noise = False

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(20)
        x = rng.normal(size=(NUM_ROWS, NUM_SLOPES))
        eta = 0.3 + x @ rng.normal(scale=0.4, size=NUM_SLOPES)
        return {"x": x, "y": cls.outcomes(rng, eta).astype(float)}

    @classmethod
    def outcomes(cls, rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
        """Return outcomes, (row,)."""
        raise NotImplementedError

    def prior(self, data_spec: DataSpec) -> Any:
        noise = {"noise": half_normal(data_spec, 2.5)} if self.has_noise else {}
        return joint(
            intercept=normal(data_spec, 0.0, 2.5),
            slope=normal(data_spec, 0.0, 2.5, NUM_SLOPES),
            **noise,
            **self.more(data_spec),
        )

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        """Return further latents."""
        del spec
        return {}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return self.around(latents["intercept"] + inputs["x"] @ latents["slope"], latents, inputs)

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of the outcomes around the linear predictor, (row,)."""
        raise NotImplementedError


class ManyNormal(_ManyRows):
    """Normal outcomes."""

    name = pretty_name = "many rows, normal"
    has_noise = True

    @classmethod
    def outcomes(cls, rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
        return eta + rng.normal(size=NUM_ROWS)

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Normal(eta, latents["noise"])


class ManyStudent(ManyNormal):
    """Outcomes with heavy tails."""

    name = pretty_name = "many rows, Student t"

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.StudentT(jnp.asarray(4.0, eta.dtype), eta, latents["noise"])


class ManyLaplace(ManyNormal):
    """Absolute errors."""

    name = pretty_name = "many rows, Laplace"

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Laplace(eta, latents["noise"])


class ManyScales(ManyNormal):
    """Normal outcomes whose noise depends on the first predictor."""

    name = pretty_name = "many rows, two scales"

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        return {"widening": normal(spec, 0.0, 1.0)}

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Normal(eta, latents["noise"] * jnp.exp(latents["widening"] * inputs["x"][:, 0]))


class ManyGroups(ManyNormal):
    """Normal outcomes in 40 groups with intercepts of their own."""

    name = pretty_name = "many rows, groups"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        return {**super().rows(), "group": (np.arange(NUM_ROWS) % 40).astype(np.int32)}

    def more(self, spec: DataSpec) -> Mapping[str, Any]:
        return {"spread": half_normal(spec, 1.0), "of_group": normal(spec, 0.0, 1.0, 40)}

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Normal(eta + latents["spread"] * latents["of_group"][inputs["group"]], latents["noise"])


class ManyLogistic(_ManyRows):
    """Yes or no, with a logit."""

    name = pretty_name = "many rows, logistic"

    @classmethod
    def outcomes(cls, rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
        return rng.uniform(size=NUM_ROWS) < 1 / (1 + np.exp(-eta))

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Bernoulli(logits=eta, dtype=eta.dtype)


class ManyProbit(ManyLogistic):
    """Yes or no, with a probit."""

    name = pretty_name = "many rows, probit"

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.ProbitBernoulli(probits=eta, dtype=eta.dtype)


class ManyPoisson(_ManyRows):
    """Counts."""

    name = pretty_name = "many rows, Poisson"

    @classmethod
    def outcomes(cls, rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
        return rng.poisson(np.exp(eta))

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Poisson(log_rate=eta)


class ManyNegativeBinomial(ManyPoisson):
    """Counts that scatter more."""

    name = pretty_name = "many rows, negative binomial"
    has_noise = True

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        count = 1 / latents["noise"]
        return tfd.NegativeBinomial(count, logits=eta - jnp.log(count))


class ManyGamma(_ManyRows):
    """Positive outcomes."""

    name = pretty_name = "many rows, gamma"
    has_noise = True

    @classmethod
    def outcomes(cls, rng: np.random.Generator, eta: np.ndarray) -> np.ndarray:
        return rng.gamma(2.0, np.exp(eta) / 2.0)

    def around(self, eta: Any, latents: Latents, inputs: Rows) -> Predictive:
        shape = 1 / latents["noise"]
        return tfd.Gamma(shape, log_rate=jnp.log(shape) - eta)


MANY_ROWS: dict[str, type[Posterior]] = {
    each.name: each
    for each in list(globals().values())
    if isinstance(each, type) and hasattr(each, "name") and issubclass(each, _ManyRows)
}
"""Name -> model."""
