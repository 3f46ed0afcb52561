"""Expectations and probabilities of classes of predictive distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive

tfd = tfp.distributions


def class_probabilities(predictive: Predictive) -> jax.Array | None:
    """Return the probabilities of each row's classes, (row, class), or of outcome 1, (row, 1); None if the outcome is a number."""
    if isinstance(predictive, tfd.Bernoulli):
        return predictive.probs_parameter()[:, None]
    if isinstance(predictive, tfd.Categorical):
        return predictive.probs_parameter()
    if isinstance(predictive, tfd.OrderedLogistic):
        return jnp.exp(predictive.categorical_log_probs())
    return None


def expectation(predictive: Predictive) -> jax.Array | None:
    """Return the expectation of each row's outcome; None if the distribution does not know it."""
    try:
        found: jax.Array | None = getattr(predictive, "mean", lambda: None)()
    except NotImplementedError:
        return None
    return found
