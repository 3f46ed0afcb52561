"""Times whose hazard grows or falls as a power."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._links import log1mexp
from bayesmesh.models.glm.families.base import (
    LogMean,
    Parameter,
    Parameters,
    Predictor,
    Values,
    Words,
    working_positive,
)

tfd = tfp.distributions


class Weibull(LogMean):
    """Weibull with shape ``shape``, with the log of the mean as the predictor."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"shape": Parameter("gamma(2, 0.5)")}
    needs, is_discrete, has_dispersion = "numbers greater than 0", False, True
    instead = "exponential and hurdle_gamma take 0"
    words = Words("Weibull, whose hazard grows as time^(shape - 1)", *texts.LOG)

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return y > 0

    def _log_scale(self, eta: Predictor, shape: Values) -> Values:
        return eta - gammaln(1 + 1 / shape)

    def _log_hazard(self, y: Values, eta: Predictor, parameters: Parameters) -> Values:
        """Return the log of the cumulative hazard at y."""
        return parameters["shape"] * (jnp.log(y) - self._log_scale(eta, parameters["shape"]))

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        hazard = self._log_hazard(rows["outcome"], eta, parameters)
        return jnp.log(parameters["shape"]) - jnp.log(rows["outcome"]) + hazard - jnp.exp(hazard)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log1mexp(jnp.exp(self._log_hazard(y, eta, parameters)))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return -jnp.exp(self._log_hazard(y, eta, parameters))

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return working_positive(y, eta)

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return parameters["shape"] ** 2

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        shape = parameters["shape"]
        return tfd.Weibull(shape, jnp.exp(self._log_scale(eta, shape)))
