"""Positive numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._cdf import log_gamma_above, log_gamma_below
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


class Gamma(LogMean):
    """Gamma-distributed numbers with shape ``shape``, with the log of the mean as the predictor."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"shape": Parameter("half_student_t(3, 10)")}
    needs, is_discrete = "numbers greater than 0", False
    has_dispersion = True
    instead = "hurdle_gamma takes 0"
    words = Words("gamma, with variance mean² / shape", *texts.LOG)  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"skewed": texts.LOG_HEAVIER, "tails": texts.LOG_HEAVIER, "wide": texts.LOG_HEAVIER, "narrow": texts.OWN_SCATTER, "uneven": texts.OWN_SCATTER, "shape": texts.LOG_HEAVIER}  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return y > 0

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return densities.gamma(rows["outcome"], eta, parameters["shape"])

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_gamma_below(parameters["shape"], parameters["shape"] * y * jnp.exp(-eta))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_gamma_above(parameters["shape"], parameters["shape"] * y * jnp.exp(-eta))

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return working_positive(y, eta)

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return parameters["shape"]

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Gamma(parameters["shape"], log_rate=jnp.log(parameters["shape"]) - eta)
