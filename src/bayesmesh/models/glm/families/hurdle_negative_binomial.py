"""Counts whose zeros come about differently from the rest, which is negative binomial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.glm.families._zeros import SHARE, Hurdle, hurdle_words
from bayesmesh.models.glm.families.base import Parameter, Parameters, Predictor, Values
from bayesmesh.models.glm.families.negative_binomial import NegativeBinomial


class HurdleNegativeBinomial(Hurdle):
    """0 with probability ``hu``, otherwise negative binomial above 0, with the log of the mean before truncation as the predictor."""

    rest = NegativeBinomial()
    parameters: ClassVar[Mapping[str, Parameter]] = {**NegativeBinomial.parameters, "hu": SHARE}
    links = NegativeBinomial.links
    has_dispersion = True
    needs = NegativeBinomial.needs
    words = hurdle_words(NegativeBinomial.words)

    def draw_positive(self, key: PRNGKeyArray, eta: Predictor, parameters: Parameters) -> Values:
        """Return the number of events on (0, 1) of a Poisson process whose rate has a gamma distribution.

        The time of the first event is drawn given that there is one, the rate given that time, and the events after it given
        both.
        """
        key_first, key_rate, key_rest = jax.random.split(key, 3)
        shape = jnp.broadcast_to(parameters["shape"], eta.shape).astype(float)
        scale = jnp.exp(eta.astype(float)) / shape
        u = jax.random.uniform(key_first, eta.shape, scale.dtype)
        # No event before t has probability (1 + scale t)^-shape.
        log_none = jnp.log1p(u * jnp.expm1(-shape * jnp.log1p(scale)))
        first = jnp.expm1(-log_none / shape) / scale
        log_rate = jax.random.loggamma(key_rate, shape + 1) + jnp.log(scale) - jnp.log1p(scale * first)
        left = jnp.maximum(1 - first, 0) * jnp.exp(log_rate)
        return 1 + tfp.distributions.Poisson(left).sample(seed=key_rest)
