"""Levels that are reached one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families._links import LINKS
from bayesmesh.models.glm.families.base import FamilyOfLevels, Parameter, Parameters, Predictor, Words

tfd = tfp.distributions


class Sequential(FamilyOfLevels):
    """A level of an ordered category, where P(level k, given at least k) = F(threshold k - predictor) (Tutz 1990).

    ``baseline`` holds the probabilities of the levels where the predictor is 0, from which the thresholds follow; they need not
    be in order.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {"baseline": Parameter("dirichlet(1)")}
    links = ("logit", "probit", "cloglog")
    needs = "a category of two levels or more, in their order"
    words = Words("sequential", "logit: the predictor is the log odds of going beyond a level of {y}, less thresholds", "in log odds", "ratio", "the odds of going beyond a level of {y}", "the probability of stopping at a level of {y} that is reached")  # fmt: skip

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        reached = np.cumsum(shares[::-1])[::-1]
        stop = shares[:-1] / reached[:-1]
        density = LINKS[self.link].slope_at(stop)
        # Derivatives of the log probabilities of the levels: those of each level that is passed, and of the one where a row stops.
        passed = np.concatenate([[0.0], np.cumsum(density / (1 - stop))])
        slopes = passed - np.append(density / stop, 0.0)
        information = np.sum(shares * np.square(slopes))
        return slopes / information, np.array(1 / information)

    def cutpoints(self, parameters: Parameters) -> Float[Array, " cutpoints"]:
        baseline = parameters["baseline"]
        above = jnp.cumsum(baseline[::-1])[::-1]
        return LINKS[self.link].cutpoints(baseline[:-1] / above[:-1], above[1:] / above[:-1])

    def log_levels(self, eta: Predictor, parameters: Parameters) -> Float[Array, "rows levels"]:
        """Return the log probability of each level, in nats."""
        link = LINKS[self.link]
        at = self.cutpoints(parameters)[None] - eta[:, None]
        passed = jnp.cumsum(link.log_rest(at), axis=1)
        none = jnp.zeros_like(eta[:, None])
        return jnp.concatenate([none, passed], axis=1) + jnp.concatenate([link.log_share(at), none], axis=1)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        level = rows["outcome"].astype(jnp.int32)[:, None]
        found = jnp.take_along_axis(self.log_levels(eta, parameters), level, axis=1, mode="clip")[:, 0]
        return jnp.where(level[:, 0] < len(parameters["baseline"]), found, -jnp.inf)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Categorical(logits=jax.nn.log_softmax(self.log_levels(eta, parameters)))
