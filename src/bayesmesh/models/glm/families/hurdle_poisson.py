"""Counts whose zeros come about differently from the rest, which is Poisson."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Rows
from bayesmesh.models.glm.families._zeros import SHARE, Hurdle, hurdle_words
from bayesmesh.models.glm.families.base import Parameter, Parameters, Predictor, Values
from bayesmesh.models.glm.families.poisson import Poisson


class HurdlePoisson(Hurdle):
    """0 with probability ``hu``, otherwise Poisson above 0, with the log of the mean before truncation as the predictor."""

    rest = Poisson()
    parameters: ClassVar[Mapping[str, Parameter]] = {**Poisson.parameters, "hu": SHARE}
    links = Poisson.links
    needs = Poisson.needs
    words = hurdle_words(Poisson.words)

    def log_zero(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Values:
        """Return minus the mean, in nats; as a sum of terms near 1 and -1 it would be 0 for small means, and counts above 0 all but certain."""
        return -jnp.exp(eta)

    def draw_positive(self, key: PRNGKeyArray, eta: Predictor, parameters: Parameters) -> Values:
        """Return the number of events of a process on (0, 1): the first one, given that there is one, and those after it."""
        key_first, key_rest = jax.random.split(key)
        mean = jnp.exp(eta.astype(float))
        u = jax.random.uniform(key_first, eta.shape, mean.dtype)
        # The mean number of events before the first one.
        before = -jnp.log1p(u * jnp.expm1(-mean))
        rest = jnp.maximum(mean - before, 0)
        return 1 + tfp.distributions.Poisson(rest).sample(seed=key_rest)
