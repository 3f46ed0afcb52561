"""Zeros beside another family: more of them than it has (zero-inflated), or all of them apart from it (hurdle)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm.families._cdf import log_complement
from bayesmesh.models.glm.families.base import Family, Parameter, Parameters, Predictor, Values, Words

SHARE = Parameter("beta(1, 1)", "logit")


class WithZeros(NamedTuple):
    """Distributions of rows with additional zeros.

    Attributes:
        share: probability of an additional zero.
        mean_of_rest: mean of the other outcomes, (row,).
        draw: draws these, (row,).
        log_density: log density of all outcomes, in nats.
    """

    share: Float[Array, "..."]
    mean_of_rest: Float[Array, " rows"]
    draw: Callable[[PRNGKeyArray], Array]
    log_density: Callable[[Array], Array]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The rows."""
        return self.mean_of_rest.shape

    def sample(self, *, seed: PRNGKeyArray) -> Float[Array, " rows"]:
        """Return one draw of each row."""
        key_zero, key_rest = jax.random.split(seed)
        is_zero = jax.random.uniform(key_zero, self.batch_shape, self.share.dtype) < self.share
        return jnp.where(is_zero, 0, self.draw(key_rest))

    def log_prob(self, value: Array) -> Float[Array, " rows"]:
        """Return the log density, in nats."""
        return self.log_density(value)

    def mean(self) -> Float[Array, " rows"]:
        """Return the mean of each row."""
        return (1 - self.share) * self.mean_of_rest


class _Zeros(Family):
    """A family whose rest is another one's, with its link and parameters.

    Class attributes:
        rest: family of the rest, with its default link.
    """

    rest: ClassVar[Family]

    def to_predictor(self, mean: float) -> float:
        return self.rest.to_predictor(mean) if mean > 0 else 0.0

    def precision(self, parameters: Parameters) -> Float[Array, ""] | float:
        return self.rest.precision(parameters)

    def fixed_dispersion(self, estimate: float) -> float:
        return self.rest.fixed_dispersion(estimate)

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray | None:
        return self.rest.constant(y, trials)


class ZeroInflated(_Zeros):
    """Zero with probability ``zi``, otherwise a count that may be 0 as well."""

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return self.rest.fits(y, trials)

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return self.rest.working(y, trials, eta)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return self._mix(rows["outcome"], self.rest.log_density(eta, rows, parameters), parameters["zi"])

    @staticmethod
    def _mix(y: Array, log_count: Values, share: Values) -> Values:
        counted = jnp.log1p(-share) + log_count
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(share), counted), counted)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        counted = jnp.log1p(-parameters["zi"]) + self.rest.log_cdf(y, eta, rows, parameters)
        return jnp.where(y < 0, -jnp.inf, jnp.logaddexp(jnp.log(parameters["zi"]), counted))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        rest = self.rest.log_survival(y, eta, rows, parameters)
        return jnp.where(y < 0, 0.0, jnp.log1p(-parameters["zi"]) + rest)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        rest, share = self.rest.predict(eta, rows, parameters), jnp.asarray(parameters["zi"])

        def log_density(y: Array) -> Array:
            return self._mix(y, rest.log_prob(y.astype(eta.astype(float).dtype)), share)

        return WithZeros(share, jnp.exp(eta), lambda key: rest.sample(seed=key), log_density)


class Hurdle(_Zeros):
    """Zero with probability ``hu``, otherwise an outcome above 0."""

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return (y == 0) | ((y > 0) & self.rest.fits(y, trials))

    def log_zero(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Values | None:
        """Return the log probability that the rest is 0, which is left out; None where it is a density of positive numbers."""
        if not self.is_discrete:
            return None
        return self.rest.log_density(eta, {**rows, "outcome": jnp.zeros_like(eta)}, parameters)

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        weight, response = self.rest.working(np.where(y > 0, y, 1.0), trials, eta)
        # Rows of zeros say nothing about the rest.
        return np.where(y > 0, weight, 0.0), response

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray | None:
        found = self.rest.constant(np.where(y > 0, y, 1.0), trials)
        return None if found is None else np.where(y > 0, found, 0.0)

    def _split(self, y: Array, log_rest: Values, log_zero: Values | None, share: Values) -> Values:
        above = log_rest if log_zero is None else log_rest - log_complement(log_zero)
        return jnp.where(y == 0, jnp.log(share), jnp.log1p(-share) + above)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        y = rows["outcome"]
        # Where the outcome is 0, that of the rest only has to be finite.
        rest = self.rest.log_density(eta, {**rows, "outcome": jnp.where(y == 0, 1, y)}, parameters)
        return self._split(y, rest, self.log_zero(eta, rows, parameters), parameters["hu"])

    def _log_above(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Values:
        """Return the log probability that the rest is above y, given that it is above 0."""
        found = self.rest.log_survival(jnp.where(y > 0, y, 1.0), eta, rows, parameters)
        log_zero = self.log_zero(eta, rows, parameters)
        return jnp.where(y > 0, found if log_zero is None else found - log_complement(log_zero), 0.0)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        above = self.log_survival(jnp.maximum(y, 0), eta, rows, parameters)
        return jnp.where(y < 0, -jnp.inf, log_complement(above))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        share = parameters["hu"]
        return jnp.where(y < 0, 0.0, jnp.log1p(-share) + self._log_above(y, eta, rows, parameters))

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        rest, share = self.rest.predict(eta, rows, parameters), jnp.asarray(parameters["hu"])
        log_zero = self.log_zero(eta, rows, parameters)

        def log_density(y: Array) -> Array:
            wide = jnp.where(y == 0, 1, y).astype(eta.astype(float).dtype)
            return self._split(y, rest.log_prob(wide), log_zero, share)

        if log_zero is None:
            return WithZeros(share, rest.mean(), lambda key: rest.sample(seed=key), log_density)  # type: ignore[attr-defined]  # of a distribution of numbers
        mean = jnp.exp(eta - log_complement(log_zero))
        return WithZeros(share, mean, lambda key: self.draw_positive(key, eta, parameters), log_density)

    def draw_positive(self, key: PRNGKeyArray, eta: Predictor, parameters: Parameters) -> Values:
        """Return one count above 0 of each row."""
        raise NotImplementedError(f"{type(self).__name__} draws by its distribution")


def hurdle_words(rest: Words) -> Words:
    """Return the words of a hurdle family: the predictor is that of the outcomes above 0."""
    return rest._replace(
        family=f"0 with probability hu, otherwise above 0 and {rest.family}",
        link=f"{rest.link} before zeros",
        of=f"{rest.of} before zeros",
    )


def inflated_words(rest: Words) -> Words:
    """Return the words of a zero-inflated family."""
    return rest._replace(
        family=f"0 with probability zi, otherwise {rest.family}",
        link=f"{rest.link} before additional zeros",
        of=f"{rest.of} before additional zeros",
    )
