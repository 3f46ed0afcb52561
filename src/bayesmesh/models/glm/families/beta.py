"""Shares strictly between 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families._cdf import log_beta_below
from bayesmesh.models.glm.families._links import LINKS, ShareMean
from bayesmesh.models.glm.families.base import Parameter, Parameters, Predictor, Values, Words

tfd = tfp.distributions


class Beta(ShareMean):
    """Beta with the logit of the mean as the predictor, and precision ``phi``: variance mean (1 - mean) / (1 + phi)."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"phi": Parameter("gamma(2, 0.1)")}
    needs, is_discrete, has_dispersion = "numbers between 0 and 1, without 0 and 1", False, True
    instead = "ordered_beta takes 0 and 1"
    words = Words("beta, with variance mean (1 - mean) / (1 + phi)", "logit: the predictor is the log odds of the mean of {y}", "in log odds", "ratio", "the odds of the mean of {y}")  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return (y > 0) & (y < 1)

    def shapes(self, eta: Predictor, parameters: Parameters) -> tuple[Values, Values]:
        """Return the two shapes of the beta distribution."""
        link, phi = LINKS[self.link], parameters["phi"]
        return phi * jnp.exp(link.log_share(eta)), phi * jnp.exp(link.log_rest(eta))

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        a, b = self.shapes(eta, parameters)
        return (a - 1) * jnp.log(rows["outcome"]) + (b - 1) * jnp.log1p(-rows["outcome"]) - tfp.math.lbeta(a, b)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return log_beta_below(*self.shapes(eta, parameters), y)

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        a, b = self.shapes(eta, parameters)
        return log_beta_below(b, a, 1 - y)

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return 1 + parameters["phi"]

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Beta(*self.shapes(eta, parameters))
