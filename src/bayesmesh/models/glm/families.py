"""Families of outcomes: link, density of a row, predictive distribution, and the parameters besides the predictor."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import special
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._outcomes import cutpoints, log_mass
from bayesmesh.models.base import Latents, Predictive, Rows
from bayesmesh.models.glm import densities

tfd = tfp.distributions

Predictor = Float[Array, "rows ..."]


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


class Family(ABC):
    """A family of outcomes.

    Class attributes:
        parameters: parameter -> its default prior; ``{rate}`` stands for 1 / the standard deviation of the
            outcome.
        needs: requirement on the outcomes, in words.
        is_in_unit: whether the predictor has the unit of the outcome.
        is_discrete: whether outcomes are whole numbers.
        takes_levels: whether outcomes are the levels of a category.
        has_dispersion: whether the variance of a row is a parameter times a function of its mean.
    """

    parameters: ClassVar[Mapping[str, str]] = {}
    needs: ClassVar[str]
    is_in_unit: ClassVar[bool] = False
    is_discrete: ClassVar[bool] = True
    takes_levels: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = False

    @abstractmethod
    def link(self, mean: float) -> float:
        """Return the predictor of a mean; the prior of the intercept is centred there."""

    @abstractmethod
    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        """Return which outcomes are possible, (row,)."""

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray | None:
        """Return the part of the log density that depends on the outcome alone, (row,), if there is one: see `densities`."""
        return None

    @abstractmethod
    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        """Return the log density of each row, in nats, less `constant`."""

    @abstractmethod
    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        """Return the distribution of each row's outcome."""

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and responses of the linear model that approximates the family near a predictor, each (row,) float64.

        The quick fit of `fit.fit` needs them; families of levels have none.

        Args:
            y: outcomes.
            trials: numbers of trials, for the binomial family; 1 otherwise.
            eta: predictors, with the offset; None to begin with those that the outcomes suggest.
        """
        raise NotImplementedError(f"{type(self).__name__} has no working response")

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return responses by level, and their variances, of the linear model that approximates a family of levels near predictors of 0.

        Args:
            shares: shares of the levels, (level,).
        """
        raise NotImplementedError(f"{type(self).__name__} has no levels")

    def precision(self, latents: Latents) -> Float[Array, ""]:
        """Return the factor by which to multiply the weights of `working`."""
        return jnp.ones_like(next(iter(latents.values())), shape=())

    def fixed_dispersion(self, estimate: float) -> float:
        """Return the number by which to divide the weights of `working` where no latent determines it."""
        return 1.0


_MOST_LOGIT, _MOST_LOG = 8.0, 30.0
"""Limits to which the quick fit clips predictors: beyond them, the weight of a row is nearly 0, or its mean overflows."""


def _working_counts(y: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and responses for a log link and variances equal to the means."""
    eta = np.log(y + 0.5) if eta is None else np.clip(eta, -_MOST_LOG, _MOST_LOG)
    mean = np.exp(eta)
    return mean, eta + (y - mean) / mean


def _working_shares(y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and responses for a logit link and binomial variances."""
    eta = special.logit((y + 0.5) / (trials + 1)) if eta is None else np.clip(eta, -_MOST_LOGIT, _MOST_LOGIT)
    share = special.expit(eta)
    slope = share * (1 - share)
    return trials * slope, eta + (y - trials * share) / np.maximum(trials * slope, 1e-300)


def _is_count(y: np.ndarray) -> np.ndarray:
    return (y >= 0) & (y == np.floor(y))


class Normal(Family):
    """Normal with standard deviation ``sigma``."""

    parameters: ClassVar[Mapping[str, str]] = {"sigma": "exponential({rate})"}
    needs, is_in_unit, is_discrete = "any number", True, False
    has_dispersion = True

    def link(self, mean: float) -> float:
        return mean

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return np.isfinite(y)

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        sigma = latents["sigma"]
        z = (rows["outcome"] - eta) / sigma
        return -0.5 * jnp.square(z) - jnp.log(sigma) - 0.5 * math.log(2 * math.pi)

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(len(y)), y

    def precision(self, latents: Latents) -> Float[Array, ""]:
        return latents["sigma"] ** -2

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        return tfd.Normal(eta, latents["sigma"])


class StudentT(Normal):
    """Student's t with ``nu`` degrees of freedom and scale ``sigma``."""

    parameters: ClassVar[Mapping[str, str]] = {"sigma": "exponential({rate})", "nu": "gamma(2, 0.1)"}

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        sigma = latents["sigma"]
        return densities.student_t((rows["outcome"] - eta) / sigma, latents["nu"]) - jnp.log(sigma)

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        return tfd.StudentT(latents["nu"], eta, latents["sigma"])


class Bernoulli(Family):
    """0 or 1, with the logit of the probability of 1 as the predictor."""

    needs = "0 or 1, or a category of two levels"

    def link(self, mean: float) -> float:
        return math.log(mean / (1 - mean)) if 0 < mean < 1 else 0.0

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return (y == 0) | (y == 1)

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        return rows["outcome"].astype(eta.dtype) * eta - jax.nn.softplus(eta)

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return _working_shares(y, trials, eta)

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        return tfd.Bernoulli(logits=eta)


class Binomial(Bernoulli):
    """Successes among trials, with the logit of the probability of success as the predictor."""

    needs = "whole numbers from 0 to the number of trials"

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        assert trials is not None
        return _is_count(y) & _is_count(trials) & (y <= trials)

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        assert trials is not None
        # The placeholder outcome of a row to be predicted may exceed its number of trials.
        y = np.minimum(y, trials)
        failures = trials - y
        best = special.xlogy(y, y) + special.xlogy(failures, failures) - special.xlogy(trials, trials)
        return best + special.gammaln(trials + 1) - special.gammaln(y + 1) - special.gammaln(failures + 1)

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        # Subtracted before they are rounded: of a billion trials, all but a few may be successes.
        failures = rows["trials"] - rows["outcome"]
        return densities.binomial(rows["outcome"].astype(eta.dtype), failures.astype(eta.dtype), eta)

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        # The sampler rounds multiples of the number of trials: in float32, draws from a billion spread too far.
        return tfd.Binomial(rows["trials"].astype(float), logits=eta.astype(float))


class Poisson(Family):
    """Counts, with the log of the mean as the predictor."""

    needs = "whole numbers from 0"

    def link(self, mean: float) -> float:
        return math.log(mean) if mean > 0 else 0.0

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return _is_count(y)

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return special.xlogy(y, y) - y - special.gammaln(y + 1)

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        return densities.poisson(rows["outcome"].astype(eta.dtype), eta)

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return _working_counts(y, eta)

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        return tfd.Poisson(log_rate=eta.astype(float))


class NegativeBinomial(Poisson):
    """Counts with variance mean + mean^2 / ``shape``, with the log of the mean as the predictor."""

    parameters: ClassVar[Mapping[str, str]] = {"shape": "inverse_gamma(0.4, 0.3)"}
    has_dispersion = True

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        return densities.negative_binomial(rows["outcome"].astype(eta.dtype), eta, latents["shape"])

    def fixed_dispersion(self, estimate: float) -> float:
        # Rows vary more than their means imply; the excess is taken to be the same for all of them.
        return max(1.0, estimate)

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        shape = latents["shape"].astype(float)
        return GammaPoisson(shape, logits=eta.astype(float) - jnp.log(shape))


class Gamma(Family):
    """Gamma-distributed numbers with shape ``shape``, with the log of the mean as the predictor."""

    parameters: ClassVar[Mapping[str, str]] = {"shape": "half_student_t(3, 10)"}
    needs, is_discrete = "numbers greater than 0", False
    has_dispersion = True

    def link(self, mean: float) -> float:
        return math.log(mean)

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return y > 0

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        return densities.gamma(rows["outcome"], eta, latents["shape"])

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        eta = np.log(y) if eta is None else np.clip(eta, -_MOST_LOG, _MOST_LOG)
        return np.ones(len(y)), eta + y * np.exp(-eta) - 1

    def precision(self, latents: Latents) -> Float[Array, ""]:
        return latents["shape"]

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        return tfd.Gamma(latents["shape"], log_rate=jnp.log(latents["shape"]) - eta)


class _OfLevels(Family):
    """Outcomes that are codes of the levels of a category."""

    takes_levels = True

    def link(self, mean: float) -> float:
        return 0.0

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return _is_count(y)


class Categorical(_OfLevels):
    """A level of a category; the predictors are the log odds of all levels but the first against the first."""

    needs = "a category of two levels or more"

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inverse = np.diag(1 / shares)
        return inverse[:, 1:] - inverse[:, :1], 1 / shares[1:] + 1 / shares[0]

    def _logits(self, eta: Predictor) -> Float[Array, "rows levels"]:
        return jnp.concatenate([jnp.zeros_like(eta[:, :1]), eta], axis=1)

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        logits = jax.nn.log_softmax(self._logits(eta))
        return jnp.take_along_axis(logits, rows["outcome"][:, None], axis=1)[:, 0]

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        return tfd.Categorical(logits=self._logits(eta))


class Ordinal(_OfLevels):
    """A level of an ordered category, with cumulative logits: P(at most level k) = sigmoid(cutpoint k - predictor).

    ``baseline`` holds the probabilities of the levels where the predictor is 0, from which the cutpoints follow.
    """

    parameters: ClassVar[Mapping[str, str]] = {"baseline": "dirichlet(1)"}
    needs = "a category of two levels or more, in their order"

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        up_to = np.cumsum(shares)
        slopes = 2 * up_to - shares - 1
        information = np.sum(shares * np.square(slopes))
        return slopes / information, np.array(1 / information)

    @staticmethod
    def cutpoints(latents: Latents) -> Float[Array, " cutpoints"]:
        """Return the logits of the cumulative baseline, all but the last."""
        return cutpoints(latents["baseline"])

    def log_density(self, eta: Predictor, rows: Rows, latents: Latents) -> Float[Array, " rows"]:
        return log_mass(eta, latents["baseline"], rows["outcome"].astype(jnp.int32))

    def predict(self, eta: Predictor, rows: Rows, latents: Latents) -> Predictive:
        return tfd.OrderedLogistic(self.cutpoints(latents), eta)


FAMILIES: Mapping[str, Family] = {
    "normal": Normal(), "student_t": StudentT(), "bernoulli": Bernoulli(), "binomial": Binomial(), "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(), "gamma": Gamma(), "categorical": Categorical(), "ordinal": Ordinal(),
}  # fmt: skip
"""Name -> family."""

LOG_LINKS = ("poisson", "negative_binomial", "gamma")
"""Families whose predictor is the log of the mean."""

DEFAULT_SCALE: float = 2.5
"""Standard deviation of the prior of intercept and coefficients, for columns and outcomes of unit standard deviation."""


def outcome_of(values: Any, family: Family) -> np.ndarray:
    """Return outcomes in the dtype in which they are stored: int32 for whole numbers, otherwise float64."""
    return np.asarray(values).astype(np.int32 if family.is_discrete else np.float64)
