"""Outcomes that are levels: labels of classes, and ordered levels with cumulative logits.

P(at most level k) = sigmoid(cutpoint k - predictor).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayesmesh.errors import ConfigError
from bayesmesh.models.base import ReadBlocks


def cutpoints(baseline: Float[Array, " levels"]) -> Float[Array, " cutpoints"]:
    """Return the logits of the cumulative probabilities where the predictor is 0, all but the last.

    Args:
        baseline: probabilities of the levels there.
    """
    below, above = jnp.cumsum(baseline), jnp.cumsum(baseline[::-1])[::-1]
    return jnp.log(below[:-1]) - jnp.log(above[1:])


def log_widths(baseline: Float[Array, " levels"]) -> Float[Array, " levels"]:
    """Return log(1 - exp(lower cutpoint - upper cutpoint)) of each level; 0 for the first and the last.

    Computed from probabilities instead of cutpoints, whose difference has no correct digit for a rare level: one minus
    the odds ratio is p / (P(at most the level) P(at least the level)).

    Args:
        baseline: probabilities of the levels where the predictor is 0.

    >>> widths = log_widths(jnp.array([0.2, 0.3, 0.5]))
    >>> cut = cutpoints(jnp.array([0.2, 0.3, 0.5]))
    >>> bool(abs(widths[1] - jnp.log1p(-jnp.exp(cut[0] - cut[1]))) < 1e-6)
    True
    """
    below, above = jnp.cumsum(baseline), jnp.cumsum(baseline[::-1])[::-1]
    # The probability of an unlikely level may underflow to 0, where the gradient of a logarithm is not finite.
    mass = jnp.maximum(baseline, jnp.finfo(baseline.dtype).tiny)
    inner = jnp.log(mass) + jnp.log(below[-1]) - jnp.log(below) - jnp.log(above)
    return inner.at[jnp.array([0, -1])].set(0)


def log_mass(
    predictor: Float[Array, " rows"], baseline: Float[Array, " levels"], level: Int[Array, " rows"]
) -> Float[Array, " rows"]:
    """Return the log probability of each row's level, in nats; minus infinity for a level beyond the last.

    Args:
        predictor: linear predictor, subtracted from the cutpoints.
        baseline: probabilities of the levels where it is 0.
        level: number of the level.
    """
    cut, last = cutpoints(baseline), baseline.shape[0] - 1
    low, high = cut[jnp.maximum(level - 1, 0)], cut[jnp.minimum(level, last - 1)]
    at_most, more = jax.nn.log_sigmoid(high - predictor), jax.nn.log_sigmoid(predictor - low)
    # log(sigmoid(high - predictor) - sigmoid(low - predictor)), from a difference without the predictor, which may be large.
    middle = at_most + more + log_widths(baseline)[jnp.minimum(level, last)]
    known = jnp.where(level == 0, at_most, jnp.where(level == last, more, middle))
    return jnp.where(level > last, -jnp.inf, known)


class OrderedValues(NamedTuple):
    """For each row, a distribution over a few ordered numbers.

    Attributes:
        log_masses: (row, level), in nats.
        values: (level,), ascending.
    """

    log_masses: Float[Array, "rows levels"]
    values: Float[Array, " levels"]

    @classmethod
    def of(
        cls, predictor: Float[Array, " rows"], baseline: Float[Array, " levels"], values: Float[Array, " levels"]
    ) -> OrderedValues:
        """Return the distribution given by cumulative logits."""

        def of_level(level: Int[Array, ""]) -> Float[Array, " rows"]:
            return log_mass(predictor, baseline, jnp.broadcast_to(level, predictor.shape))

        return cls(jax.vmap(of_level, 0, 1)(jnp.arange(values.shape[0])), values)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The rows."""
        return self.log_masses.shape[:-1]

    def sample(self, *, seed: PRNGKeyArray) -> Float[Array, " rows"]:
        """Return a draw for each row."""
        return self.values[jax.random.categorical(seed, self.log_masses)]

    def log_prob(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the log probability of the value nearest to each, in nats."""
        level = jnp.argmin(jnp.abs(value[:, None] - self.values[None]), axis=1)
        return jnp.take_along_axis(self.log_masses, level[:, None], axis=1)[:, 0]

    def mean(self) -> Float[Array, " rows"]:
        """Return the expected value of each row."""
        return jnp.exp(self.log_masses) @ self.values

    def cdf(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the probability that each row's outcome is at most its value."""
        return jnp.sum(jnp.exp(self.log_masses) * (self.values[None] <= value[:, None]), axis=1)

    def cdf_below(self, value: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """Return the probability that each row's outcome is less than its value."""
        return jnp.sum(jnp.exp(self.log_masses) * (self.values[None] < value[:, None]), axis=1)


def check_labels(field: str, num_classes: int, read_blocks: ReadBlocks) -> None:
    """Check that all labels are whole numbers from 0 to the number of classes less 1: others have a log probability of 0.

    Args:
        field: field with the labels.
        num_classes: number of classes.
        read_blocks: returns an iterator over all rows in blocks.

    Raises:
        ConfigError: some are not; the message counts them and shows the first.
    """
    parts = [rows[field] for rows in read_blocks()]
    labels = np.concatenate([each[~((each >= 0) & (each < num_classes) & (each == np.floor(each)))] for each in parts])
    if labels.size:
        raise ConfigError(
            f"field '{field}': {labels.size} rows have labels that are not classes, such as {labels.flat[0]:g}; with "
            f"num_classes: {num_classes}, labels are the whole numbers 0 to {num_classes - 1}",
            "count classes from 0, and set the constant `num_classes` to their number; or declare the column as a category",
        )
