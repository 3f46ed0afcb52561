"""Positive numbers whose log is normal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families.base import Family, Parameter, Parameters, Predictor, Values, Words

tfd = tfp.distributions


class LogNormal(Family):
    """Log-normal: the log has mean ``eta`` and standard deviation ``sigma``."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"sigma": Parameter("half_student_t(3, 2.5)")}
    needs, is_discrete, has_dispersion = "numbers greater than 0", False, True
    instead = "hurdle_log_normal takes 0"
    words = Words("log-normal, with standard deviation sigma of the log", "identity: the predictor is the mean of log {y}", "in the unit of log {y}", "ratio", "the median of {y}")  # fmt: skip

    def to_predictor(self, mean: float) -> float:
        return math.log(mean)

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return y > 0

    def _z(self, y: Values, eta: Predictor, parameters: Parameters) -> Values:
        return (jnp.log(y) - eta) / parameters["sigma"]

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        z = self._z(rows["outcome"], eta, parameters)
        return (
            -0.5 * jnp.square(z) - jnp.log(parameters["sigma"]) - jnp.log(rows["outcome"]) - 0.5 * math.log(2 * math.pi)
        )

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_ndtr(self._z(y, eta, parameters))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_ndtr(-self._z(y, eta, parameters))

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(len(y)), np.log(y)

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return parameters["sigma"] ** -2

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.LogNormal(eta, parameters["sigma"])
