"""Tell an R-hat that chance explains from one that shows chains which disagree.

R-hat compares the means of half chains. If these agree, their means differ only by the Monte Carlo error, which the
autocorrelation within half chains gives: R-hat then exceeds 1 by about the number of half chains over twice the effective
sample size. A limit that is the same for all sample sizes, and holds for the largest of many values, is missed by chance.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real
from scipy.special import chdtrc, ndtri

from bayesmesh.diagnostics.autocovariance import Centred, centre, effective_size
from bayesmesh.diagnostics.ranks import order_draws, rank_normalise, rank_normalise_folded

LEVEL = 0.001
"""Probability of any value of a table being called beyond chance, if all chains agree."""

_ROUNDS = 4
"""Estimates of the variance between means; each has less than half of the error of the one before, unless chains drift."""

_BLOCK_DRAWS = 2**17
"""Draws that are ranked at a time."""


def chance_of_r_hat(x: Real[np.ndarray, "chain draw coordinate"]) -> Float[np.ndarray, " coordinate"]:
    """Return the probability of an R-hat at least as large as that of the draws, if all half chains agree.

    Args:
        x: draws of at least two chains and four draws, any real dtype; computed in float64.

    Returns:
        Probability for each coordinate; NaN where a draw is not finite or all are equal. Means of half chains are taken as
        normal, with the variance that follows from the effective sample size of the draws less the mean of their own half
        chain; disagreement between chains does not enlarge it. The larger of two R-hats counts, so the smaller of their
        probabilities is doubled.

    Reference:
        Gelman and Rubin 1992, doi:10.1214/ss/1177011136, for the two variances; Vats and Knudson 2021, "Revisiting the
        Gelman-Rubin diagnostic", doi:10.1214/20-STS812, equation 6, for R-hat as a function of the effective sample size.

    >>> x = np.random.default_rng(0).normal(size=(4, 100, 1))
    >>> bool(chance_of_r_hat(x)[0] > 0.1), bool(chance_of_r_hat(x + np.arange(4)[:, None, None])[0] < 1e-6)
    (True, True)
    """
    chances = np.full(x.shape[2], np.nan)
    usable = np.flatnonzero(np.isfinite(x).all(axis=(0, 1)) & (x != x[:1, :1]).any(axis=(0, 1)))
    block = max(1, _BLOCK_DRAWS // (x.shape[0] * x.shape[1]))
    for rows in np.split(usable, range(block, len(usable), block)):
        ordered = order_draws(np.array(np.moveaxis(x[:, :, rows], -1, 0), dtype=np.float64, order="C"))
        bulk, folded = (_chance(centre(z)) for z in (rank_normalise(ordered), rank_normalise_folded(ordered)))
        # Distances of two values from their median are all equal, and have no chance of their own.
        chances[rows] = np.minimum(1.0, 2 * np.fmin(bulk, folded))
    return chances


def _chance(halves: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return the probability of the variance between the means of half chains; NaN of draws that do not vary."""
    num_halves = halves.means.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = halves.means.var(axis=1, ddof=1) / _variance_of_agreeing_means(halves)
    return np.asarray(chdtrc(num_halves - 1, (num_halves - 1) * ratio))


def _variance_of_agreeing_means(halves: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return the variance between the means of half chains that agree.

    A half chain that is centred about its own mean lacks the autocorrelation that the mean takes up: every lag is too low by
    the variance between means. So the means are given back, as far apart as the last estimate says, and the next one is
    made from these draws. Few rounds: draws that drift, for which the estimates grow without end, are not excused.
    """
    _, num_halves, num_draws = halves.deviations.shape
    spread = ndtri((np.arange(num_halves) + 0.5) / num_halves)
    spread /= spread.std(ddof=1)
    variance = np.zeros(len(halves.means))
    for _ in range(_ROUNDS):
        agreeing = centre(halves.deviations + np.sqrt(variance)[:, None, None] * spread[:, None])
        total = agreeing.within * (num_draws - 1) / num_draws + variance
        variance = total * num_halves / effective_size(agreeing)
    return variance
