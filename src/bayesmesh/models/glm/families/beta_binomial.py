"""Successes among trials that vary more than those of a binomial distribution."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families.base import Family, Parameters, Predictor, Words, are_successes
from bayesmesh.models.glm.families.beta import Beta

tfd = tfp.distributions


class BetaBinomial(Beta):
    """Successes among trials whose probability has a beta distribution with the predictor's mean and precision ``phi``."""

    has_trials, is_discrete = True, True
    needs = "whole numbers from 0 to the number of trials"
    instead = "beta takes shares, and negative_binomial counts without trials"
    words = Words("beta-binomial, whose probability varies between rows with precision phi", "logit: the predictor is the log odds of a success", "in log odds", "ratio", "the odds of a success")  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return are_successes(y, trials)

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        assert trials is not None
        y = np.minimum(y, trials)
        return special.gammaln(trials + 1) - special.gammaln(y + 1) - special.gammaln(trials - y + 1)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        a, b = self.shapes(eta, parameters)
        failures = rows["trials"] - rows["outcome"]
        return tfp.math.lbeta(a + rows["outcome"], b + failures) - tfp.math.lbeta(a, b)

    log_cdf, log_survival = Family.log_cdf, Family.log_survival

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return jnp.ones_like(parameters["phi"])

    def fixed_dispersion(self, estimate: float) -> float:
        return max(1.0, estimate)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        a, b = self.shapes(eta.astype(float), parameters)
        return tfd.BetaBinomial(rows["trials"].astype(float), a, b)
