"""Levels in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._outcomes import cutpoints, log_mass
from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families.base import FamilyOfLevels, Parameter, Parameters, Predictor, Words

tfd = tfp.distributions


class Ordinal(FamilyOfLevels):
    """A level of an ordered category, with cumulative logits: P(at most level k) = sigmoid(cutpoint k - predictor).

    ``baseline`` holds the probabilities of the levels where the predictor is 0, from which the cutpoints follow.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {"baseline": Parameter("dirichlet(1)")}
    links = ("logit",)
    needs = "a category of two levels or more, in their order"
    words = Words("ordinal", "cumulative logit: the predictor is the log odds of a higher level of {y}, less cutpoints", "in log odds", "ratio", "the odds of a higher level of {y}")  # fmt: skip

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        up_to = np.cumsum(shares)
        slopes = 2 * up_to - shares - 1
        information = np.sum(shares * np.square(slopes))
        return slopes / information, np.array(1 / information)

    @staticmethod
    def cutpoints(parameters: Parameters) -> Float[Array, " cutpoints"]:
        """Return the logits of the cumulative baseline, all but the last."""
        return cutpoints(parameters["baseline"])

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_mass(eta, parameters["baseline"], rows["outcome"].astype(jnp.int32))

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.OrderedLogistic(self.cutpoints(parameters), eta)
