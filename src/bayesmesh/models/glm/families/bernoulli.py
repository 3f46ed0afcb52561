"""Outcomes 0 or 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families._links import LINKS, ShareMean
from bayesmesh.models.glm.families.base import Parameters, Predictor, Words

tfd = tfp.distributions


class Bernoulli(ShareMean):
    """0 or 1, with the logit of the probability of 1 as the predictor."""

    takes_two_levels = True
    needs = "0 or 1, or a category of two levels"
    instead = "binomial takes numbers of successes, beta numbers between 0 and 1, and categorical levels"
    words = Words("Bernoulli", "logit: the predictor is the log odds of {one}", "in log odds", "ratio", "the odds of {one}")  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return (y == 0) | (y == 1)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        if self.link != "logit":
            return jnp.where(rows["outcome"] == 1, LINKS[self.link].log_share(eta), LINKS[self.link].log_rest(eta))
        return rows["outcome"].astype(eta.dtype) * eta - jax.nn.softplus(eta)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Bernoulli(logits=self.log_odds(eta))

    def log_odds(self, eta: Predictor) -> Predictor:
        """Return the log odds of each row."""
        return eta if self.link == "logit" else LINKS[self.link].log_share(eta) - LINKS[self.link].log_rest(eta)
