"""Levels in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families._links import LINKS, level_cutpoints, log_level
from bayesmesh.models.glm.families.base import FamilyOfLevels, Parameter, Parameters, Predictor, Words

tfd = tfp.distributions


class Ordinal(FamilyOfLevels):
    """A level of an ordered category, with cumulative probabilities: P(at most level k) = F(cutpoint k - predictor).

    ``baseline`` holds the probabilities of the levels where the predictor is 0, from which the cutpoints follow. F is the
    logistic, the normal or the complementary log-log distribution function.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {"baseline": Parameter("dirichlet(1)")}
    links = ("logit", "probit", "cloglog")
    needs = "a category of two levels or more, in their order"
    words = Words("ordinal", "cumulative logit: the predictor is the log odds of a higher level of {y}, less cutpoints", "in log odds", "ratio", "the odds of a higher level of {y}", "the probability of at most a level of {y}")  # fmt: skip

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Derivatives of the log probabilities of the levels.
        density = LINKS[self.link].slope_at(np.cumsum(shares)[:-1])
        slopes = -np.diff(density, prepend=0.0, append=0.0) / shares
        information = np.sum(shares * np.square(slopes))
        return slopes / information, np.array(1 / information)

    def cutpoints(self, parameters: Parameters) -> Float[Array, " cutpoints"]:
        return level_cutpoints(self.link, parameters["baseline"])

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_level(self.link, eta, parameters["baseline"], rows["outcome"].astype(jnp.int32))

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        if self.link == "logit":
            return tfd.OrderedLogistic(self.cutpoints(parameters), eta)
        levels = jnp.arange(parameters["baseline"].shape[0])
        of_level = jax.vmap(lambda k: log_level(self.link, eta, parameters["baseline"], jnp.full(eta.shape, k)), 0, 1)
        return tfd.Categorical(logits=of_level(levels))
