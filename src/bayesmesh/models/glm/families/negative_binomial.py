"""Counts that vary more than their means imply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._cdf import log_beta_below
from bayesmesh.models.glm.families.base import Parameter, Parameters, Predictor, Values, Words
from bayesmesh.models.glm.families.poisson import Poisson

tfd = tfp.distributions


class GammaPoisson(tfp.distributions.NegativeBinomial):
    """A negative binomial distribution whose draws cost the same for every mean.

    TFP adds up waiting times until they exceed the mean. Here the mean of a Poisson distribution is drawn, and then a count,
    by transformed rejection (Hoermann 1993, doi:10.1016/0167-6687(93)90997-4) in float64, accurate to means of 1e12.
    """

    def sample(self, *, seed: PRNGKeyArray) -> Float[Array, " rows"]:
        """Return one draw of each row."""
        key_mean, key_count = jax.random.split(seed)
        shape = jnp.broadcast_to(self.total_count, self.batch_shape)
        log_mean = self.logits_parameter() + jax.random.loggamma(key_mean, shape)
        count: Array = tfd.Poisson(log_rate=log_mean).sample(seed=key_count)
        return count


class NegativeBinomial(Poisson):
    """Counts with variance mean + mean^2 / ``shape``, with the log of the mean as the predictor."""

    parameters: ClassVar[Mapping[str, Parameter]] = {"shape": Parameter("inverse_gamma(0.4, 0.3)")}
    has_dispersion = True
    words = Words("negative binomial, with variance mean + mean² / shape", *texts.LOG)  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"binary": texts.BINARY, "narrow": texts.OWN_SCATTER, "zeros": texts.ZEROS, "tails": texts.OWN_SCATTER, "uneven": texts.OWN_SCATTER, "wide": texts.BOUNDED_OR_ZEROS, "shape": texts.OWN_SCATTER}  # fmt: skip

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return densities.negative_binomial(rows["outcome"].astype(eta.dtype), eta, parameters["shape"])

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        shape, count = parameters["shape"], jnp.maximum(jnp.floor(y), 0) + 1
        return jnp.where(y < 0, -jnp.inf, log_beta_below(shape, count, jax.nn.sigmoid(jnp.log(shape) - eta)))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        shape, count = parameters["shape"], jnp.maximum(jnp.floor(y), 0) + 1
        return jnp.where(y < 0, 0.0, log_beta_below(count, shape, jax.nn.sigmoid(eta - jnp.log(shape))))

    def fixed_dispersion(self, estimate: float) -> float:
        # Rows vary more than their means imply; the excess is taken to be the same for all of them.
        return max(1.0, estimate)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        shape = parameters["shape"].astype(float)
        return GammaPoisson(shape, logits=eta.astype(float) - jnp.log(shape))
