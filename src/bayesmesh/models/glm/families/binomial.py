"""Successes among trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float
from scipy import special
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._cdf import log_beta_below
from bayesmesh.models.glm.families._links import LINKS
from bayesmesh.models.glm.families.base import Parameters, Predictor, Values, Words, are_successes
from bayesmesh.models.glm.families.bernoulli import Bernoulli

tfd = tfp.distributions


class Binomial(Bernoulli):
    """Successes among trials, with the logit of the probability of success as the predictor."""

    has_trials = True
    needs = "whole numbers from 0 to the number of trials"
    instead = "beta takes shares, and poisson counts without trials"
    words = Words("binomial", "logit: the predictor is the log odds of a success", "in log odds", "ratio", "the odds of a success")  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"narrow": texts.ROWS, "zeros": texts.ROWS, "tails": texts.ROWS, "uneven": texts.ROWS, "wide": texts.OWN_SCATTER, "shape": texts.OWN_SCATTER}  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return are_successes(y, trials)

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        assert trials is not None
        # The placeholder outcome of a row to be predicted may exceed its number of trials.
        y = np.minimum(y, trials)
        failures = trials - y
        best = special.xlogy(y, y) + special.xlogy(failures, failures) - special.xlogy(trials, trials)
        return best + special.gammaln(trials + 1) - special.gammaln(y + 1) - special.gammaln(failures + 1)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        n, count = rows["trials"].astype(eta.dtype), jnp.floor(y)
        inside = log_beta_below(
            jnp.maximum(n - count, 1), jnp.maximum(count, 0) + 1, jnp.exp(LINKS[self.link].log_rest(eta))
        )
        return jnp.where(y < 0, -jnp.inf, jnp.where(count >= n, 0.0, inside))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        n, count = rows["trials"].astype(eta.dtype), jnp.floor(y)
        inside = log_beta_below(
            jnp.maximum(count, 0) + 1, jnp.maximum(n - count, 1), jnp.exp(LINKS[self.link].log_share(eta))
        )
        return jnp.where(y < 0, 0.0, jnp.where(count >= n, -jnp.inf, inside))

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        # Subtracted before they are rounded: of a billion trials, all but a few may be successes.
        failures = rows["trials"] - rows["outcome"]
        if self.link != "logit":
            y, others = rows["outcome"].astype(eta.dtype), failures.astype(eta.dtype)
            best = xlogy(y, y) + xlogy(others, others) - xlogy(y + others, y + others)
            return y * LINKS[self.link].log_share(eta) + others * LINKS[self.link].log_rest(eta) - best
        return densities.binomial(rows["outcome"].astype(eta.dtype), failures.astype(eta.dtype), eta)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        # The sampler rounds multiples of the number of trials: in float32, draws from a billion spread too far.
        return tfd.Binomial(rows["trials"].astype(float), logits=self.log_odds(eta).astype(float))
