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
        rest: distribution of the rest.
        share: probability of an additional zero.
        log_density, mean_of_rest: of the outcome, and of the rest.
        draw: draws the rest.
    """

    rest: Predictive
    share: Float[Array, "..."]
    log_density: Callable[[Array], Array]
    mean_of_rest: Array
    draw: Callable[[PRNGKeyArray], Array]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The rows."""
        return tuple(self.rest.batch_shape)

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


def _log_one_less(share: Values) -> Values:
    return jnp.log1p(-share)


class _Zeros(Family):
    """A family whose rest is another one's.

    Class attributes:
        rest: family of the rest, with its default link.
        share: parameter with the probability of an additional zero.
    """

    rest: ClassVar[Family]
    share: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "rest"):
            cls.parameters = {**cls.rest.parameters, cls.share: SHARE}
            cls.links, cls.has_dispersion, cls.is_discrete = (
                (cls.rest.link,),
                cls.rest.has_dispersion,
                cls.rest.is_discrete,
            )

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

    share = "zi"

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return self.rest.fits(y, trials)

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return self.rest.working(y, trials, eta)

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return self._mix(rows["outcome"], self.rest.log_density(eta, rows, parameters), parameters["zi"])

    @staticmethod
    def _mix(y: Array, log_count: Values, share: Values) -> Values:
        counted = _log_one_less(share) + log_count
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(share), counted), counted)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        counted = _log_one_less(parameters["zi"]) + self.rest.log_cdf(y, eta, rows, parameters)
        return jnp.where(y < 0, -jnp.inf, jnp.logaddexp(jnp.log(parameters["zi"]), counted))

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        rest = self.rest.log_survival(y, eta, rows, parameters)
        return jnp.where(y < 0, 0.0, _log_one_less(parameters["zi"]) + rest)

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        rest, share = self.rest.predict(eta, rows, parameters), jnp.asarray(parameters["zi"])

        def log_density(y: Array) -> Array:
            return self._mix(y, rest.log_prob(y.astype(eta.astype(float).dtype)), share)

        return WithZeros(rest, share, log_density, jnp.exp(eta), lambda key: rest.sample(seed=key))


class Hurdle(_Zeros):
    """Zero with probability ``hu``, otherwise an outcome above 0."""

    share = "hu"

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return (y == 0) | ((y > 0) & self.rest.fits(y, trials))

    def log_zero(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Values | None:
        """Return the log probability of 0 under the rest, less which it is; None if it is a density of positive numbers."""
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
        return jnp.where(y == 0, jnp.log(share), _log_one_less(share) + above)

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
        return jnp.where(y < 0, 0.0, _log_one_less(share) + self._log_above(y, eta, rows, parameters))

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        rest, share = self.rest.predict(eta, rows, parameters), jnp.asarray(parameters["hu"])
        log_zero = self.log_zero(eta, rows, parameters)

        def log_density(y: Array) -> Array:
            wide = jnp.where(y == 0, 1, y).astype(eta.astype(float).dtype)
            return self._split(y, rest.log_prob(wide), log_zero, share)

        if log_zero is None:
            return WithZeros(rest, share, log_density, rest.mean(), lambda key: rest.sample(seed=key))  # type: ignore[attr-defined]  # of a distribution of numbers
        mean = jnp.exp(eta - log_complement(log_zero))
        return WithZeros(rest, share, log_density, mean, lambda key: self.draw_positive(key, eta, parameters))

    def draw_positive(self, key: PRNGKeyArray, eta: Predictor, parameters: Parameters) -> Values:
        """Return one count above 0 of each row."""
        raise NotImplementedError(f"{type(self).__name__} draws by its distribution")


def hurdle_words(rest: Words) -> Words:
    """Return the words of a hurdle family: the predictor is that of the outcomes above 0."""
    return rest._replace(
        family=f"0 with probability hu, otherwise above 0 and {rest.family}", of=f"{rest.of} before zeros"
    )


def inflated_words(rest: Words) -> Words:
    """Return the words of a zero-inflated family."""
    return rest._replace(
        family=f"0 with probability zi, otherwise {rest.family}", of=f"{rest.of} before additional zeros"
    )
