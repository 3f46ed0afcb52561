"""Quantile regression: the predictor is a quantile of the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families._links import log1mexp
from bayesmesh.models.glm.families.base import Family, Parameter, Parameters, Predictor, Values, Words


class Outcomes(NamedTuple):
    """Asymmetric Laplace distributions of rows."""

    eta: Float[Array, " rows"]
    sigma: Float[Array, "..."]
    quantile: Float[Array, "..."]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The rows."""
        return self.eta.shape

    def sample(self, *, seed: PRNGKeyArray) -> Float[Array, " rows"]:
        """Return one draw of each row: a difference of two exponentials."""
        below, above = jax.random.exponential(seed, (2, *self.eta.shape), self.eta.dtype)
        return self.eta + self.sigma * (above / self.quantile - below / (1 - self.quantile))

    def log_prob(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the log density, in nats."""
        z, p = (value - self.eta) / self.sigma, self.quantile
        return jnp.log(p) + jnp.log1p(-p) - jnp.log(self.sigma) - z * jnp.where(z > 0, p, p - 1)

    def mean(self) -> Float[Array, " rows"]:
        """Return the mean of each row."""
        p = self.quantile
        return self.eta + self.sigma * (1 - 2 * p) / (p * (1 - p))


class AsymmetricLaplace(Family):
    """Asymmetric Laplace, whose quantile of probability ``quantile`` is the predictor (Yu and Moyeed 2001)."""

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "sigma": Parameter("exponential({rate})"),
        "quantile": Parameter("beta(1, 1)", "logit"),
    }
    needs, is_in_unit, is_discrete, has_dispersion = "any number", True, False, True
    words = Words("asymmetric Laplace, with scale sigma", "identity: the predictor is a quantile of {y}", "in the unit of {y}", "difference", "a quantile of {y}")  # fmt: skip

    def to_predictor(self, mean: float) -> float:
        return mean

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return np.isfinite(y)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return Outcomes(eta, parameters["sigma"], parameters["quantile"]).log_prob(rows["outcome"])

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return self._log_tail((eta - y) / parameters["sigma"], 1 - parameters["quantile"])

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return self._log_tail((y - eta) / parameters["sigma"], parameters["quantile"])

    @staticmethod
    def _log_tail(z: Values, p: Values) -> Values:
        """Return the log of the probability beyond z, of which 1 - p is beyond 0."""
        beyond = jnp.log1p(-p) - p * jnp.maximum(z, 0)
        other = jnp.log(p) + (1 - p) * jnp.minimum(z, 0)
        return jnp.where(z > 0, beyond, log1mexp(-other))

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(len(y)), y

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return parameters["quantile"] * (1 - parameters["quantile"]) * parameters["sigma"] ** -2

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return Outcomes(eta, parameters["sigma"], parameters["quantile"])
