"""Levels of a category."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families.base import FamilyOfLevels, Parameters, Predictor, Words

tfd = tfp.distributions


class Categorical(FamilyOfLevels):
    """A level of a category; the predictors are the log odds of all levels but the first against the first."""

    links = ("logit",)
    needs = "a category of two levels or more"
    words = Words("categorical", "log odds of each level against {first}", "in log odds", "ratio", "the odds of {level} against {first}")  # fmt: skip

    def output_shape(self, num_levels: int) -> tuple[int, ...]:
        return (num_levels - 1,)

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inverse = np.diag(1 / shares)
        return inverse[:, 1:] - inverse[:, :1], 1 / shares[1:] + 1 / shares[0]

    def _logits(self, eta: Predictor) -> Float[Array, "rows levels"]:
        return jnp.concatenate([jnp.zeros_like(eta[:, :1]), eta], axis=1)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        logits = jax.nn.log_softmax(self._logits(eta))
        return jnp.take_along_axis(logits, rows["outcome"][:, None], axis=1)[:, 0]

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Categorical(logits=self._logits(eta))
