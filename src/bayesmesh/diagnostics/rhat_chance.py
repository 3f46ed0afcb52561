"""Tell an R-hat that chance explains from one that shows disagreement between chains.

R-hat compares the means of half chains. If half chains agree, their means differ only by Monte Carlo error, whose size
follows from the autocorrelation within half chains. R-hat then exceeds 1 by about the number of half chains divided by
twice the effective sample size, for draws that are far from independent. A limit that is the same for all sample sizes, and applies to the largest of many
values, is therefore sometimes missed by chance.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real
from scipy.special import chdtrc, ndtri

from bayesmesh.diagnostics.autocovariance import Centred, centre, effective_size
from bayesmesh.diagnostics.ranks import order_draws, rank_normalise, rank_normalise_folded

LEVEL = 0.001
"""Probability, if all chains agree, that any value of a table is said to be beyond chance."""

_ROUNDS = 4
"""Successive estimates of the variance between means; each has less than half the error of the previous one, unless
chains drift."""

_BLOCK_DRAWS = 2**17
"""Number of draws ranked at a time."""


def chance_of_r_hat(x: Real[np.ndarray, "chain draw coordinate"]) -> Float[np.ndarray, " coordinate"]:
    """Return the probability of an R-hat at least as large as that of the draws, if all half chains agree.

    Args:
        x: draws, any real dtype; computed in float64.

    Returns:
        Probability for each coordinate; NaN where a draw is not finite or all are equal, and with fewer than four draws
        per chain. Means of half chains are
        treated as normal. Their variance follows from the effective sample size of draws centred within their own half
        chain, so disagreement between chains does not inflate it. R-hat is the larger of two values, so the smaller of
        their probabilities is doubled.

    Reference:
        Gelman and Rubin 1992, doi:10.1214/ss/1177011136, for the two variances; Vats and Knudson 2021, "Revisiting the
        Gelman-Rubin diagnostic", doi:10.1214/20-STS812, equation 6, for R-hat as a function of the effective sample size.

    >>> x = np.random.default_rng(0).normal(size=(4, 100, 1))
    >>> bool(chance_of_r_hat(x)[0] > 0.1), bool(chance_of_r_hat(x + np.arange(4)[:, None, None])[0] < 1e-6)
    (True, True)
    """
    chances = np.full(x.shape[2], np.nan)
    if x.shape[1] < 4:
        return chances
    usable = np.flatnonzero(np.isfinite(x).all(axis=(0, 1)) & (x != x[:1, :1]).any(axis=(0, 1)))
    block = max(1, _BLOCK_DRAWS // (x.shape[0] * x.shape[1]))
    for rows in np.split(usable, range(block, len(usable), block)):
        ordered = order_draws(np.array(np.moveaxis(x[:, :, rows], -1, 0), dtype=np.float64, order="C"))
        bulk, folded = (_chance(centre(z)) for z in (rank_normalise(ordered), rank_normalise_folded(ordered)))
        # Two-valued draws may all be equally far from their median; the folded scores then give NaN.
        chances[rows] = np.minimum(1.0, 2 * np.fmin(bulk, folded))
    return chances


def _chance(halves: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return the probability of the variance between the means of half chains; NaN for draws that do not vary."""
    num_halves = halves.means.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = halves.means.var(axis=1, ddof=1) / _variance_of_agreeing_means(halves)
    return np.asarray(chdtrc(num_halves - 1, (num_halves - 1) * ratio))


def _variance_of_agreeing_means(halves: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return the variance between the means of half chains that agree.

    Centring a half chain about its own mean removes autocovariance: every lag is too low by the variance between means.
    So means are added back, as far apart as the previous estimate says, and the next estimate is made from these draws.
    The rounds are few, so that drifting draws, for which the estimates grow without bound, are not excused.
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
