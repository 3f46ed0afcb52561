"""Times between events of a constant rate."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._links import log1mexp
from bayesmesh.models.glm.families.base import LogMean, Parameters, Predictor, Values, Words, working_positive

tfd = tfp.distributions


class Exponential(LogMean):
    """Exponential, with the log of the mean as the predictor."""

    needs, is_discrete = "numbers from 0", False
    instead = "normal takes negative numbers"
    words = Words("exponential, whose standard deviation is its mean", *texts.LOG)

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return y >= 0

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return -eta - rows["outcome"] * jnp.exp(-eta)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log1mexp(y * jnp.exp(-eta))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return -y * jnp.exp(-eta)

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return working_positive(y, eta)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Exponential(jnp.exp(-eta))
