"""Pareto-smoothed importance sampling for many rows at once.

Equal to ``arviz_stats`` 1.3 up to rounding, without its loop over rows.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

_WORK_BYTES = 16 * 2**20
NEGLIGIBLE = 1e-3
"""Log ratios within this range change no estimate by as much, and in float32 the shape of their tail is only
rounding."""

_MIN_TAIL = 5
"""Fewest draws to which a tail is fitted."""
_PRIOR_DRAWS, _PRIOR_K = 10, 0.5
"""Weight of the prior on k, in draws, and its mean."""


def good_k(num_draws: int) -> float:
    """Return the largest Pareto k at which an estimate from this many draws is reliable.

    Reference:
        Vehtari et al. 2024, arXiv:1507.02646, section 3.2.4.

    >>> round(good_k(400), 3), good_k(8000)
    (0.616, 0.7)
    """
    return min(1 - 1 / math.log10(max(num_draws, 2)), 0.7)


def smooth_weights(
    log_ratios: Float[np.ndarray, "row draw"], r_eff: Float[np.ndarray, " row"]
) -> tuple[Float[np.ndarray, "row draw"], Float[np.ndarray, " row"]]:
    """Return smoothed log weights, normalised over the draws of each row, and Pareto k.

    Args:
        log_ratios: logarithms of importance ratios, float64, finite.
        r_eff: effective sample size of the weighted quantity divided by the number of draws.

    Returns:
        Log weights, and k. Where the tail has fewer than five draws or no spread at its lower end, k is infinite and
        the weights are not smoothed; where the log ratios of all draws lie within `NEGLIGIBLE` nats, k is 0.

    Reference:
        Vehtari, Simpson, Gelman, Yao, Gabry 2024, "Pareto smoothed importance sampling", arXiv:1507.02646.

    >>> weights, k = smooth_weights(np.random.default_rng(1).standard_normal((2, 1000)), np.ones(2))
    >>> np.exp(weights).sum(1).round(12).tolist(), bool((k < 0.7).all())
    ([1.0, 1.0], True)
    """
    weights = log_ratios - log_ratios.max(axis=1, keepdims=True)
    lengths = tail_lengths(weights.shape[1], r_eff)
    k = np.full(len(weights), np.inf)
    for length in map(int, np.unique(lengths[lengths >= _MIN_TAIL])):
        rows = np.flatnonzero(lengths == length)
        step = max(1, _WORK_BYTES // (8 * length * _num_points(length)))
        for part in np.split(rows, range(step, len(rows), step)):
            weights[part], k[part] = _smooth_tails(weights[part], length)
    k[weights.min(axis=1) > -NEGLIGIBLE] = 0.0
    # The largest were 0, and smoothing leaves them near it.
    return weights - np.log(np.exp(weights).sum(axis=1, keepdims=True)), k


def tail_lengths(num_draws: int, r_eff: Float[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """Return the number of largest ratios that are smoothed in each row.

    >>> tail_lengths(1000, np.array([1.0, 0.25, 0.1])).tolist()
    [94, 189, 200]
    """
    is_long = num_draws * r_eff > 225
    with np.errstate(divide="ignore"):
        return np.where(is_long, np.floor(3 * np.sqrt(num_draws / r_eff)), num_draws // 5).astype(np.int64)


def _num_points(length: int) -> int:
    """Return the number of points at which the profile likelihood of a tail is evaluated."""
    return 30 + int(length**0.5)


def _smooth_tails(
    weights: Float[np.ndarray, "row draw"], length: int
) -> tuple[Float[np.ndarray, "row draw"], Float[np.ndarray, " row"]]:
    """Replace the largest log ratios of each row, whose maximum is 0, by quantiles of the fitted distribution."""
    first = weights.shape[1] - length
    order = np.argpartition(weights, (first - 1, first), axis=1)[:, first - 1 :]
    cutoff = np.exp(np.take_along_axis(weights, order[:, :1], axis=1))
    places = order[:, 1:]
    largest = np.take_along_axis(weights, places, axis=1)
    within = np.argsort(largest, axis=1, kind="stable")
    places, largest = np.take_along_axis(places, within, axis=1), np.take_along_axis(largest, within, axis=1)
    excess = np.exp(largest) - cutoff
    # Otherwise the distribution is far from a generalised Pareto one.
    fits = excess[:, _quartile(length)] > excess[:, 0]
    k = np.full(len(weights), np.inf)
    if fits.any():
        k[fits], sigma = fit_tail(excess[fits])
        below = np.log1p(-(np.arange(length) + 0.5) / length)
        quantiles = cutoff[fits] + sigma[:, None] * np.expm1(-k[fits, None] * below[None]) / k[fits, None]
        # No smoothed weight exceeds the largest raw weight.
        largest[fits] = np.minimum(np.log(quantiles), 0.0)
        np.put_along_axis(weights, places, largest, axis=1)
    return weights, k


def _quartile(length: int) -> int:
    return int(length / 4 + 0.5) - 1


def fit_tail(
    excess: Float[np.ndarray, "row tail"],
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return shape k and scale of a generalised Pareto distribution fitted to each row.

    Args:
        excess: excesses over a threshold, ascending; the first quartile is larger than the first entry.

    Reference:
        Zhang and Stephens 2009, doi:10.1198/tech.2009.08017, with the prior on k from arXiv:1507.02646, appendix C.
    """
    length = excess.shape[1]
    num_points = _num_points(length)
    steps = 1 - np.sqrt(num_points / (np.arange(1, num_points + 1) - 0.5))
    b = steps[None] / (3 * excess[:, _quartile(length), None]) + 1 / excess[:, -1:]
    shape = np.log1p(-b[:, :, None] * excess[:, None, :]).mean(axis=2)
    profile = length * (np.log(-b / shape) - shape - 1)
    weights = np.exp(profile - logsumexp(profile, axis=1, keepdims=True))
    weights[weights < 10 * np.finfo(np.float64).eps] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    mean = (b * weights).sum(axis=1)
    found = np.log1p(-mean[:, None] * excess).mean(axis=1)
    return (length * found + _PRIOR_DRAWS * _PRIOR_K) / (length + _PRIOR_DRAWS), -found / mean
