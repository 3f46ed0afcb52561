"""Ordered outcomes by cumulative logits: P(at most level k) = sigmoid(cutpoint k - predictor)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def cutpoints(baseline: Float[Array, " levels"]) -> Float[Array, " cutpoints"]:
    """Return the logits of the cumulative probabilities where the predictor is 0, all but the last.

    Args:
        baseline: probabilities of the levels there.
    """
    below, above = jnp.cumsum(baseline), jnp.cumsum(baseline[::-1])[::-1]
    return jnp.log(below[:-1]) - jnp.log(above[1:])


def log_mass(
    predictor: Float[Array, " rows"], cut: Float[Array, " cutpoints"], level: Int[Array, " rows"]
) -> Float[Array, " rows"]:
    """Return the log probability of a level of each row, in nats."""
    last = cut.shape[0]
    low, high = cut[jnp.maximum(level - 1, 0)], cut[jnp.minimum(level, last - 1)]
    at_most, more = jax.nn.log_sigmoid(high - predictor), jax.nn.log_sigmoid(predictor - low)
    # log(sigmoid(high - predictor) - sigmoid(low - predictor)), from a difference without the predictor, which may be large.
    gap = jnp.where((level > 0) & (level < last), low - high, -1)
    middle = at_most + more + jnp.log(-jnp.expm1(gap))
    return jnp.where(level == 0, at_most, jnp.where(level == last, more, middle))


class OrderedValues(NamedTuple):
    """The distribution of one of a few ordered numbers for each row.

    Attributes:
        log_masses: (row, level), in nats.
        values: (level,), ascending.
    """

    log_masses: Float[Array, "rows levels"]
    values: Float[Array, " levels"]

    @classmethod
    def of(
        cls, predictor: Float[Array, " rows"], cut: Float[Array, " cutpoints"], values: Float[Array, " levels"]
    ) -> OrderedValues:
        """Return the distribution by cumulative logits."""
        levels = jnp.arange(values.shape[0])
        masses = jax.vmap(lambda level: log_mass(predictor, cut, jnp.broadcast_to(level, predictor.shape)), 0, 1)(
            levels
        )
        return cls(masses, values)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The rows."""
        return self.log_masses.shape[:-1]

    def sample(self, *, seed: PRNGKeyArray) -> Float[Array, " rows"]:
        """Return a value of each row."""
        return self.values[jax.random.categorical(seed, self.log_masses)]

    def log_prob(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the log probability of the value nearest to each, in nats."""
        level = jnp.argmin(jnp.abs(value[:, None] - self.values[None]), axis=1)
        return jnp.take_along_axis(self.log_masses, level[:, None], axis=1)[:, 0]

    def mean(self) -> Float[Array, " rows"]:
        """Return the expected value of each row."""
        return jnp.exp(self.log_masses) @ self.values

    def cdf(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the probability of at most each value."""
        return jnp.sum(jnp.exp(self.log_masses) * (self.values[None] <= value[:, None]), axis=1)

    def cdf_below(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the probability of less than each value."""
        return jnp.sum(jnp.exp(self.log_masses) * (self.values[None] < value[:, None]), axis=1)
