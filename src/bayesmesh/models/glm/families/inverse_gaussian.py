"""Positive numbers with a long tail: times at which a Brownian motion first reaches a level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._cdf import log_complement
from bayesmesh.models.glm.families.base import MOST_LOG, LogMean, Parameter, Parameters, Predictor, Values, Words

tfd = tfp.distributions


class InverseGaussian(LogMean):
    """Inverse Gaussian with variance mean^3 / ``shape``, with the log of the mean as the predictor."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"shape": Parameter("half_student_t(3, 10)")}
    needs, is_discrete, has_dispersion = "numbers greater than 0", False, True
    instead = "hurdle_gamma takes 0"
    words = Words("inverse Gaussian, with variance mean³ / shape", *texts.LOG)

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return y > 0

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        y, shape = rows["outcome"], parameters["shape"]
        apart = jnp.expm1(jnp.log(y) - eta)
        return 0.5 * (jnp.log(shape) - densities.LOG_2_PI) - 1.5 * jnp.log(y) - 0.5 * shape * jnp.square(apart) / y

    def _parts(self, y: Values, eta: Predictor, parameters: Parameters) -> tuple[Values, Values, Values]:
        root, ratio = jnp.sqrt(parameters["shape"] / y), jnp.exp(jnp.log(y) - eta)
        far = 2 * parameters["shape"] * jnp.exp(-eta) + log_ndtr(-root * (ratio + 1))
        return log_ndtr(root * (ratio - 1)), log_ndtr(root * (1 - ratio)), far

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        below, _, far = self._parts(y, eta, parameters)
        return jnp.minimum(jnp.logaddexp(below, far), 0.0)

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        _, above, far = self._parts(y, eta, parameters)
        return above + log_complement(jnp.minimum(far - above, 0.0))

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        eta = np.log(y) if eta is None else np.clip(eta, -MOST_LOG, MOST_LOG)
        return np.exp(-eta), eta + y * np.exp(-eta) - 1

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return parameters["shape"]

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.InverseGaussian(jnp.exp(eta), parameters["shape"])
