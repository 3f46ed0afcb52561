"""What a family of outcomes is: link, density of a row, predictive distribution, and parameters besides the predictor."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from bayesmesh.config.user_code import load_named
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Predictive, Rows

Predictor = Float[Array, "rows ..."]

Values = Float[Array, "..."]

Parameters = Mapping[str, Array]
"""Parameter -> one number for all rows, or one for each."""

DEFAULT_SCALE: float = 2.5
"""Standard deviation of the prior of intercept and coefficients, for columns and outcomes of unit standard deviation."""


LINKS_OF_PARAMETERS: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "identity": (lambda x: x, lambda x: x),
    "log": (jnp.log, jnp.exp),
    "logit": (jax.scipy.special.logit, jax.nn.sigmoid),
}
"""Link of a parameter -> the function and its inverse."""


class Parameter(NamedTuple):
    """A parameter of a family.

    Attributes:
        prior: its default prior where it is one number; ``{rate}`` stands for 1 / the standard deviation of the outcome.
        link: log, logit or identity, of which a predictor of the parameter is the value.
    """

    prior: str
    link: str = "log"


class Words(NamedTuple):
    """A family in words; ``{y}`` stands for the outcome, ``{one}`` for its second level or 1, ``{first}`` for its first.

    Attributes:
        family: its name.
        link: meaning of the predictor.
        unit: unit of the predictor.
        scale, of: how the predictor acts on the outcome; see `bayesmesh.store.posterior.description.Effects`.
        below: probability from whose link the predictor is subtracted, of ordered levels. Cloglog alone needs it: the other
            links of the complement differ in sign only.
    """

    family: str
    link: str
    unit: str
    scale: str
    of: str
    below: str = ""


class Family(ABC):
    """A family of outcomes.

    Class attributes:
        words: the family in words.
        remedies: way in which predictions are wrong -> what to try. Never the family itself, and no key that it does not have;
            what to try for a bias is the same for all families.
        parameters: parameter -> its default prior and link.
        links: names of the links of the predictor; the first is the default.
        needs: requirement on the outcomes, in words.
        instead: another family for outcomes that do not fit, in words.
        is_in_unit: whether the predictor has the unit of the outcome.
        is_discrete: whether outcomes are whole numbers.
        takes_levels: whether outcomes are the levels of a category.
        takes_two_levels: whether they may be those of a category of two, of which the second counts as 1.
        has_trials: whether each row has a number of trials.
        has_dispersion: whether the variance of a row is a parameter times a function of its mean.
    """

    words: ClassVar[Words]
    remedies: ClassVar[Mapping[str, str]] = {}
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    links: ClassVar[tuple[str, ...]] = ("identity",)
    needs: ClassVar[str]
    instead: ClassVar[str] = ""
    is_in_unit: ClassVar[bool] = False
    is_discrete: ClassVar[bool] = True
    takes_levels: ClassVar[bool] = False
    takes_two_levels: ClassVar[bool] = False
    has_trials: ClassVar[bool] = False
    has_dispersion: ClassVar[bool] = False

    def __init__(self, link: str | None = None) -> None:
        self.link = link or self.links[0]

    @property
    def link_words(self) -> Words:
        """The words, for the link."""
        if self.link == self.links[0]:
            return self.words
        of = self.words.of.replace("odds", f"{self.link} of the probability")
        if self.link == "cloglog" and self.words.below:
            of = f"minus the cloglog of {self.words.below}"
        text = f"{self.link}: the predictor is {of}"
        return self.words._replace(link=text, unit=f"on the scale of the {self.link}", scale="difference", of=of)

    @property
    def name(self) -> str:
        """The name in a configuration: that of its file, or ``module:attribute`` of a class of the user's own."""
        module, own = type(self).__module__, type(self).__qualname__
        folder, _, name = module.rpartition(".")
        return name if folder == __package__ else f"{module}:{own}"

    @property
    def is_summed(self) -> bool:
        """Whether sums of products over rows say all that the rows say; see `condensed.condense_normal`."""
        return False

    @property
    def is_ordered(self) -> bool:
        """Whether outcomes are levels in their order: probabilities of the levels take the place of an intercept."""
        return "baseline" in self.parameters

    def output_shape(self, num_levels: int) -> tuple[int, ...]:
        """Return the shape of one row's predictor.

        Args:
            num_levels: number of levels of the outcome; 0 if it is a number.
        """
        return ()

    @abstractmethod
    def to_predictor(self, mean: float) -> float:
        """Return the predictor of a mean; the prior of the intercept is centred there."""

    @abstractmethod
    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        """Return which outcomes are possible, (row,)."""

    def constant(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray | None:
        """Return the part of the log density that depends on the outcome alone, (row,), if there is one: see `densities`."""
        return None

    @abstractmethod
    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        """Return the log density of each row, in nats, less `constant`."""

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        """Return the log probability of an outcome of at most y, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no distribution function")

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        """Return the log probability of an outcome above y, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no distribution function")

    @property
    def has_cdf(self) -> bool:
        """Whether outcomes may be censored, truncated or rounded."""
        return type(self).log_cdf is not Family.log_cdf

    @abstractmethod
    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        """Return the distribution of each row's outcome."""

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and responses of the linear model that approximates the family near a predictor, each (row,) float64.

        The quick fit of `fit.fit` needs them; families of levels have none.

        Args:
            y: outcomes.
            trials: numbers of trials, for families that have them; 1 otherwise.
            eta: predictors, with the offset; None to begin with those that the outcomes suggest.
        """
        raise NotImplementedError(f"{type(self).__name__} has no working response")

    def scores(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return responses by level, and their variances, of the linear model that approximates a family of levels near predictors of 0.

        Args:
            shares: shares of the levels, (level,).
        """
        raise NotImplementedError(f"{type(self).__name__} has no levels")

    @property
    def has_cutpoints(self) -> bool:
        """Whether summaries show the cutpoints."""
        return type(self).cutpoints is not Family.cutpoints

    def cutpoints(self, parameters: Parameters) -> Float[Array, " cutpoints"]:
        """Return the cutpoints, or thresholds, of ordered levels where the predictor is 0, in its unit."""
        raise NotImplementedError(f"{type(self).__name__} has no ordered levels")

    def precision(self, parameters: Parameters) -> Float[Array, ""] | float:
        """Return the factor by which to multiply the weights of `working`."""
        return 1.0

    def fixed_dispersion(self, estimate: float) -> float:
        """Return the number by which to divide the weights of `working` where no latent determines it."""
        return 1.0


MOST_LOGIT, MOST_LOG = 8.0, 30.0
"""Limits to which the quick fit clips predictors: beyond them, the weight of a row is nearly 0, or its mean overflows."""


def working_counts(y: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and responses for a log link and variances equal to the means."""
    eta = np.log(y + 0.5) if eta is None else np.clip(eta, -MOST_LOG, MOST_LOG)
    mean = np.exp(eta)
    return mean, eta + (y - mean) / mean


def working_shares(y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and responses for a logit link and binomial variances."""
    eta = special.logit((y + 0.5) / (trials + 1)) if eta is None else np.clip(eta, -MOST_LOGIT, MOST_LOGIT)
    share = special.expit(eta)
    slope = share * (1 - share)
    return trials * slope, eta + (y - trials * share) / np.maximum(trials * slope, 1e-300)


def is_count(y: np.ndarray) -> np.ndarray:
    """Return which numbers are whole and not negative."""
    return (y >= 0) & (y == np.floor(y))


def are_successes(y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
    """Return which numbers are whole and at most the number of trials."""
    assert trials is not None
    return is_count(y) & is_count(trials) & (y <= trials)


def working_positive(y: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and responses for a log link and standard deviations proportional to the means."""
    eta = np.log(np.maximum(y, 1e-300)) if eta is None else np.clip(eta, -MOST_LOG, MOST_LOG)
    return np.ones(len(y)), eta + y * np.exp(-eta) - 1


class LogMean(Family):
    """Outcomes whose predictor is the log of the mean."""

    links = ("log",)

    def to_predictor(self, mean: float) -> float:
        return math.log(mean) if mean > 0 else 0.0


class FamilyOfLevels(Family):
    """Outcomes that are codes of the levels of a category."""

    takes_levels = True

    def to_predictor(self, mean: float) -> float:
        return 0.0

    def fits(self, y: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
        return is_count(y)


@functools.cache
def family_of(name: str, link: str | None = None) -> Family:
    """Return a family.

    Args:
        name: name of a file of this folder, or ``module:attribute`` of a class of the user's own.
        link: name of a link of the family; None for its default.

    Raises:
        ConfigError: the family has no such link, or the attribute is not a family.
    """
    if ":" in name:
        found = load_named(name)
        if not (inspect.isclass(found) and issubclass(found, Family)):
            raise ConfigError(
                f"key 'model.family': '{name}' is not a subclass of {Family.__module__}.Family",
                "derive a class from it",
            )
    else:
        module = importlib.import_module(f"bayesmesh.models.glm.families.{name}")
        own = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
        (found,) = (c for c in own if issubclass(c, Family))
    if link is not None and link not in found.links:
        raise ConfigError(
            f"key 'model.link': the family {name} has no link '{link}'", f"use {' or '.join(found.links)}"
        )
    return found(link)


def outcome_of(values: Any, family: Family) -> np.ndarray:
    """Return outcomes in the dtype in which they are stored: int32 for whole numbers, otherwise float64."""
    return np.asarray(values).astype(np.int32 if family.is_discrete else np.float64)
