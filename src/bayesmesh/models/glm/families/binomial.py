"""Successes among trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Float
from scipy import special
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families.base import Parameters, Predictor, Words, is_count
from bayesmesh.models.glm.families.bernoulli import Bernoulli

tfd = tfp.distributions


class Binomial(Bernoulli):
    """Successes among trials, with the logit of the probability of success as the predictor."""

    has_trials = True
    needs = "whole numbers from 0 to the number of trials"
    words = Words("binomial", "logit: the predictor is the log odds of a success", "in log odds", "ratio", "the odds of a success")  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"narrow": texts.ROWS, "zeros": texts.ROWS, "tails": texts.ROWS, "uneven": texts.ROWS, "wide": texts.OWN_SCATTER, "shape": texts.OWN_SCATTER}  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        assert trials is not None
        return is_count(y) & is_count(trials) & (y <= trials)

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        assert trials is not None
        # The placeholder outcome of a row to be predicted may exceed its number of trials.
        y = np.minimum(y, trials)
        failures = trials - y
        best = special.xlogy(y, y) + special.xlogy(failures, failures) - special.xlogy(trials, trials)
        return best + special.gammaln(trials + 1) - special.gammaln(y + 1) - special.gammaln(failures + 1)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        # Subtracted before they are rounded: of a billion trials, all but a few may be successes.
        failures = rows["trials"] - rows["outcome"]
        return densities.binomial(rows["outcome"].astype(eta.dtype), failures.astype(eta.dtype), eta)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        # The sampler rounds multiples of the number of trials: in float32, draws from a billion spread too far.
        return tfd.Binomial(rows["trials"].astype(float), logits=eta.astype(float))
