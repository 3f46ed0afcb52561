"""Positive numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families.base import MOST_LOG, Family, Parameter, Parameters, Predictor, Words

tfd = tfp.distributions


class Gamma(Family):
    """Gamma-distributed numbers with shape ``shape``, with the log of the mean as the predictor."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"shape": Parameter("half_student_t(3, 10)")}
    links = ("log",)
    needs, is_discrete = "numbers greater than 0", False
    has_dispersion = True
    words = Words("gamma, with variance mean² / shape", *texts.LOG)  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"skewed": texts.LOG_HEAVIER, "tails": texts.LOG_HEAVIER, "wide": texts.LOG_HEAVIER, "narrow": texts.OWN_SCATTER, "uneven": texts.OWN_SCATTER, "shape": texts.LOG_HEAVIER}  # fmt: skip

    def to_predictor(self, mean: float) -> float:
        return math.log(mean)

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return y > 0

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return densities.gamma(rows["outcome"], eta, parameters["shape"])

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        eta = np.log(y) if eta is None else np.clip(eta, -MOST_LOG, MOST_LOG)
        return np.ones(len(y)), eta + y * np.exp(-eta) - 1

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return parameters["shape"]

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Gamma(parameters["shape"], log_rate=jnp.log(parameters["shape"]) - eta)
