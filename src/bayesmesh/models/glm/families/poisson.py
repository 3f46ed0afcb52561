"""Counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._cdf import log_gamma_above, log_gamma_below
from bayesmesh.models.glm.families.base import LogMean, Parameters, Predictor, Values, Words, is_count, working_counts

tfd = tfp.distributions


class Poisson(LogMean):
    """Counts, with the log of the mean as the predictor."""

    needs = "whole numbers from 0"
    instead = "gamma takes numbers with decimals, and hurdle_gamma 0 besides; normal takes negative numbers"
    words = Words("Poisson, whose variance is its mean", *texts.LOG)  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"binary": texts.BINARY, "narrow": texts.MORE_SCATTER, "zeros": texts.MORE_SCATTER, "tails": texts.MORE_SCATTER, "uneven": texts.MORE_SCATTER, "wide": texts.BOUNDED, "shape": texts.OWN_SCATTER}  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return is_count(y)

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return special.xlogy(y, y) - y - special.gammaln(y + 1)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return densities.poisson(rows["outcome"].astype(eta.dtype), eta)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return jnp.where(y < 0, -jnp.inf, log_gamma_above(jnp.maximum(jnp.floor(y), 0) + 1, jnp.exp(eta)))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return jnp.where(y < 0, 0.0, log_gamma_below(jnp.maximum(jnp.floor(y), 0) + 1, jnp.exp(eta)))

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return working_counts(y, eta)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.Poisson(log_rate=eta.astype(float))
