"""Pareto-smoothed importance sampling for many rows, by ``arviz_stats``."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

NEGLIGIBLE = 1e-3
"""Log ratios within this range change no estimate by as much, and in float32 the shape of their tail is only
rounding."""


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
    from arviz_stats.base import array_stats  # half a second that pages, which need `good_k` alone, need not wait for

    weights, k = np.empty_like(log_ratios), np.full(len(log_ratios), np.inf)
    for row, (ratios, efficiency) in enumerate(zip(log_ratios, r_eff, strict=True)):
        try:
            # It takes log likelihoods, which are minus the log ratios.
            weights[row], k[row] = array_stats.psislw(-ratios, r_eff=efficiency)
        except ValueError:
            # The tail has fewer than five draws, or all of them are equal.
            weights[row] = ratios - logsumexp(ratios)
    k[np.isnan(k)] = np.inf
    k[np.ptp(log_ratios, axis=1) < NEGLIGIBLE] = 0.0
    return weights, k
