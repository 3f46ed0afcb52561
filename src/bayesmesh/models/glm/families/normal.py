"""Normal outcomes."""

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
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families.base import Family, Parameter, Parameters, Predictor, Values, Words

tfd = tfp.distributions


class Normal(Family):
    """Normal with standard deviation ``sigma``."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"sigma": Parameter("exponential({rate})")}
    needs, is_in_unit, is_discrete = "any number", True, False
    has_dispersion = True
    words = Words("normal, with standard deviation sigma", "identity: the predictor is the mean of {y}", *texts.MEAN)  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"binary": texts.BINARY, "counts": texts.COUNTS, "skewed": texts.LOG_OUTCOME, "tails": texts.HEAVIER, "wide": texts.HEAVIER, "narrow": texts.TRANSFORM, "uneven": texts.UNEVEN, "shape": texts.TRANSFORM}  # fmt: skip

    @property
    def is_summed(self) -> bool:
        # A subclass may have another density.
        return type(self).log_density is Normal.log_density

    def to_predictor(self, mean: float) -> float:
        return mean

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return np.isfinite(y)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        sigma = parameters["sigma"]
        z = (rows["outcome"] - eta) / sigma
        return -0.5 * jnp.square(z) - jnp.log(sigma) - 0.5 * math.log(2 * math.pi)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_ndtr((y - eta) / parameters["sigma"])

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_ndtr((eta - y) / parameters["sigma"])

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(len(y)), y

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return parameters["sigma"] ** -2

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Normal(eta, parameters["sigma"])
