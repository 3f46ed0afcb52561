"""Links of probabilities: logit, probit and complementary log-log."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtri
from jaxtyping import Array, Float
from scipy import special

from bayesmesh.models._outcomes import cutpoints, log_mass
from bayesmesh.models.glm.families.base import MOST_LOGIT, Family, working_shares

Values = Float[Array, "..."]


def log1mexp(x: Values) -> Values:
    """Return log(1 - exp(-x)) of numbers from 0 (Maechler 2012); at 0, the log of the smallest number instead of minus infinity.

    >>> [round(float(log1mexp(jnp.array(x))), 4) for x in (0.1, 3.0)]
    [-2.3522, -0.0511]
    """
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    is_small = x < np.log(2)
    small, large = jnp.where(is_small, x, 1.0), jnp.where(is_small, 1.0, x)
    return jnp.where(is_small, jnp.log(-jnp.expm1(-small)), jnp.log1p(-jnp.exp(-large)))


def log_between(low: Values, high: Values) -> Values:
    """Return the log of the mass of the standard normal distribution between two points, exact in both tails."""
    is_above = low > 0
    left, right = jnp.where(is_above, -high, low), jnp.where(is_above, -low, high)
    log_right = log_ndtr(right)
    return log_right + log1mexp(log_right - log_ndtr(left))


class Link(NamedTuple):
    """A link of a probability p = F(eta).

    Attributes:
        to_predictor: p -> eta, on the host.
        share, slope: eta -> p, and dp / d eta, on the host.
        log_share: eta -> log p.
        log_rest: eta -> log(1 - p).
        log_between: low, high -> log(F(high) - F(low)).
        cutpoints: cumulative probabilities from below and from above -> eta.
        words: meaning of the predictor.
    """

    to_predictor: Callable[[float], float]
    share: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    log_share: Callable[[Values], Values]
    log_rest: Callable[[Values], Values]
    log_between: Callable[[Values, Values], Values]
    cutpoints: Callable[[Values, Values], Values]

    def slope_at(self, share: np.ndarray) -> np.ndarray:
        """Return dp / d eta where p has some values."""
        return self.slope(np.vectorize(self.to_predictor)(share))

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and responses for binomial variances: see `Family.working`."""
        if eta is None:
            eta = np.vectorize(self.to_predictor)((y + 0.5) / (trials + 1))
        eta = np.clip(eta, -MOST_LOGIT, 2.0 if self is LINKS["cloglog"] else MOST_LOGIT)
        share = np.clip(self.share(eta), 1e-12, 1 - 1e-12)
        slope = np.maximum(self.slope(eta), 1e-12)
        return trials * slope**2 / (share * (1 - share)), eta + (y / np.maximum(trials, 1) - share) / slope


def _cloglog_between(low: Values, high: Values) -> Values:
    return -jnp.exp(low) + log1mexp(jnp.exp(high) - jnp.exp(low))


LINKS: dict[str, Link] = {
    "logit": Link(
        lambda p: math.log(p / (1 - p)), special.expit, lambda eta: special.expit(eta) * special.expit(-eta),
        jax.nn.log_sigmoid, lambda eta: jax.nn.log_sigmoid(-eta),
        lambda low, high: jax.nn.log_sigmoid(high) + jax.nn.log_sigmoid(-low) + log1mexp(high - low),
        lambda below, above: jnp.log(below) - jnp.log(above),
    ),
    "probit": Link(
        lambda p: float(special.ndtri(p)), special.ndtr, lambda eta: np.exp(-0.5 * eta**2) / math.sqrt(2 * math.pi),
        log_ndtr, lambda eta: log_ndtr(-eta), log_between,
        lambda below, above: jnp.where(below < 0.5, ndtri(jnp.minimum(below, 0.5)), -ndtri(jnp.minimum(above, 0.5))),
    ),
    "cloglog": Link(
        lambda p: float(np.log(-np.log1p(-p))), lambda eta: -np.expm1(-np.exp(eta)), lambda eta: np.exp(eta - np.exp(eta)),
        lambda eta: log1mexp(jnp.exp(eta)), lambda eta: -jnp.exp(eta), _cloglog_between,
        lambda below, above: jnp.log(-jnp.log(above)),
    ),
}  # fmt: skip
"""Name -> link."""


def log_level(link: str, eta: Values, baseline: Float[Array, " levels"], level: Array) -> Float[Array, " rows"]:
    """Return the log probability of each row's level, where P(at most level k) = F(cutpoint k - eta); see `_outcomes.log_mass`."""
    if link == "logit":
        return log_mass(eta, baseline, level)
    cut, last = level_cutpoints(link, baseline), baseline.shape[0] - 1
    low, high = cut[jnp.maximum(level - 1, 0)] - eta, cut[jnp.minimum(level, last - 1)] - eta
    # Where only one of them counts, the other must not make the difference 0.
    is_inner = (level > 0) & (level < last)
    middle = LINKS[link].log_between(jnp.where(is_inner, low, high - 1), high)
    known = jnp.where(
        level == 0, LINKS[link].log_share(high), jnp.where(level == last, LINKS[link].log_rest(low), middle)
    )
    return jnp.where(level > last, -jnp.inf, known)


def level_cutpoints(link: str, baseline: Float[Array, " levels"]) -> Float[Array, " cutpoints"]:
    """Return the cutpoints at which the levels have the probabilities `baseline` where the predictor is 0."""
    if link == "logit":
        return cutpoints(baseline)
    below, above = jnp.cumsum(baseline), jnp.cumsum(baseline[::-1])[::-1]
    return LINKS[link].cutpoints(below[:-1], above[1:])


class ShareMean(Family):
    """Outcomes whose predictor is a link of a probability or of a mean between 0 and 1."""

    links: ClassVar[tuple[str, ...]] = ("logit", "probit", "cloglog")

    def to_predictor(self, mean: float) -> float:
        return LINKS[self.link].to_predictor(mean) if 0 < mean < 1 else 0.0

    def working(self, y: np.ndarray, trials: np.ndarray, eta: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return working_shares(y, trials, eta) if self.link == "logit" else LINKS[self.link].working(y, trials, eta)
