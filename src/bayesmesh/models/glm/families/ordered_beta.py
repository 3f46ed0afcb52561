"""Shares from 0 to 1, with both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Rows
from bayesmesh.models.glm.families._links import ShareMean
from bayesmesh.models.glm.families.base import Parameter, Parameters, Predictor, Values, Words

tfd = tfp.distributions


class Outcomes(NamedTuple):
    """Ordered beta distributions of rows.

    Attributes:
        ends: log probabilities of 0, of 1, and of what lies between.
        inside: distribution of what lies between.
    """

    ends: tuple[Values, Values, Values]
    inside: tfp.distributions.Beta

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The rows."""
        return self.ends[0].shape

    def sample(self, *, seed: PRNGKeyArray) -> Float[Array, " rows"]:
        """Return one draw of each row."""
        key_end, key_inside = jax.random.split(seed)
        which = jax.random.categorical(key_end, jnp.stack(self.ends, axis=-1))
        return jnp.where(which == 2, self.inside.sample(seed=key_inside), which.astype(self.ends[0].dtype))

    def log_prob(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the log probability of an end, or the log density between them, in nats."""
        low, high, between = self.ends
        is_inside = (value > 0) & (value < 1)
        within = between + self.inside.log_prob(jnp.where(is_inside, value, 0.5))
        return jnp.where(is_inside, within, jnp.where(value == 0, low, high))

    def mean(self) -> Float[Array, " rows"]:
        """Return the mean of each row."""
        return jnp.exp(self.ends[1]) + jnp.exp(self.ends[2]) * self.inside.mean()


class OrderedBeta(ShareMean):
    """0, 1, or a number between with a beta distribution, all three with the same predictor (Kubinec 2023, doi:10.1017/pan.2022.20).

    P(0) = 1 - expit(eta - cut_zero), P(1) = expit(eta - cut_one), and cut_one = cut_zero + ``gap``.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "phi": Parameter("gamma(2, 0.1)"),
        "cut_zero": Parameter("normal(-2, 2)", "identity"),
        "gap": Parameter("gamma(2, 0.5)"),
    }
    links = ("logit",)
    needs, is_discrete, has_dispersion = "numbers from 0 to 1", False, True
    instead = "gamma takes positive numbers, and normal any number"
    words = Words("ordered beta, with precision phi between 0 and 1, and with both ends", "logit: the predictor is the log odds of the mean between the ends", "in log odds", "ratio", "the odds of the mean of {y} between the ends")  # fmt: skip

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return (y >= 0) & (y <= 1)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return self.predict(eta, rows, parameters).log_prob(rows["outcome"])

    def precision(self, parameters: Parameters) -> Float[Array, ""]:
        return 1 + parameters["phi"]

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Outcomes:
        low, high = eta - parameters["cut_zero"], eta - parameters["cut_zero"] - parameters["gap"]
        at_least, at_most = jax.nn.log_sigmoid(low), jax.nn.log_sigmoid(-high)
        between = at_least + at_most + jnp.log(-jnp.expm1(-parameters["gap"]))
        phi = parameters["phi"]
        inside = tfd.Beta(phi * jax.nn.sigmoid(eta), phi * jax.nn.sigmoid(-eta))
        return Outcomes((jax.nn.log_sigmoid(-low), jax.nn.log_sigmoid(high), between), inside)
