"""Autocovariances by FFT and the effective sample size by Geyer's initial monotone sequence, for many coordinates.

Arrays are ``(coordinate, chain, draw)``, float64 and finite. Sums run in the order in which arviz_stats runs them, since
for short chains and for indicators the sum of two autocorrelations can be exactly zero, and rounding then decides where
Geyer's sequence ends.
"""

from __future__ import annotations

import numpy as np
import scipy.fft
from jaxtyping import Float

_CONSTANT_RANGE = float(np.finfo(np.float64).resolution)
"""Draws whose range is below this count as constant, and then as independent, as in arviz_stats."""


def autocovariance(
    x: Float[np.ndarray, "coordinate chain draw"],
) -> Float[np.ndarray, "coordinate chain draw"]:
    """Return the biased autocovariance of each chain at every lag.

    Args:
        x: draws, float64.

    Returns:
        Autocovariance, as many lags as draws; sums are divided by the number of draws.

    Reference:
        Geyer 1992, "Practical Markov chain Monte Carlo", doi:10.1214/ss/1177011137.

    >>> autocovariance(np.array([[[0.0, 1.0, 2.0]]])).round(6) + 0.0
    array([[[ 0.666667,  0.      , -0.333333]]])
    """
    num_draws = x.shape[-1]
    length = scipy.fft.next_fast_len(2 * num_draws, real=True)
    spectrum = scipy.fft.rfft(x - x.mean(axis=-1, keepdims=True), n=length, axis=-1)
    spectrum *= np.conjugate(spectrum)
    covariance = scipy.fft.irfft(spectrum, n=length, axis=-1, overwrite_x=True)[..., :num_draws]
    covariance /= num_draws
    return covariance


def effective_sample_size(x: Float[np.ndarray, "coordinate chain draw"]) -> Float[np.ndarray, " coordinate"]:
    """Return the effective sample size of each coordinate's mean, all chains together.

    Args:
        x: draws, float64, finite; at least two chains (or half chains) and two draws.

    Returns:
        Effective sample size in draws, float64; the number of draws if all are equal.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, equations 10 to 13; Geyer 1992, doi:10.1214/ss/1177011137,
        for the initial monotone sequence.

    >>> alternating = np.tile([1.0, -1.0, 1.0, -0.9], 50).reshape(1, 2, 100)
    >>> bool(effective_sample_size(alternating)[0] > 200)  # antithetic draws are worth more than independent ones
    True
    """
    _, num_chains, num_draws = x.shape
    total = num_chains * num_draws
    # Copied so that NumPy sums the chains of one lag pairwise, as for a single coordinate.
    covariance = np.ascontiguousarray(np.moveaxis(autocovariance(x), 1, -1)).mean(axis=-1)
    within = covariance[:, 0] * num_draws / (num_draws - 1.0)
    var_plus = within * (num_draws - 1.0) / num_draws + x.mean(axis=-1).var(axis=-1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1.0 - (within[:, None] - covariance) / var_plus[:, None]
        rho[:, 0] = 1.0
        tau = _integrated_time(rho)
    tau = np.maximum(tau, 1 / np.log10(total))
    ess = np.where(np.isnan(rho[:, 1]), np.nan, total / tau)
    is_constant = x.max(axis=(1, 2)) - x.min(axis=(1, 2)) < _CONSTANT_RANGE
    return np.where(is_constant, float(total), ess)


def _integrated_time(rho: Float[np.ndarray, "coordinate lag"]) -> Float[np.ndarray, " coordinate"]:
    """Return Geyer's integrated autocorrelation time.

    Lags are combined in pairs (0, 1), (2, 3), ... up to the first pair whose sum is not positive. Sums of earlier pairs
    are made monotone; of that pair only a positive even lag counts.
    """
    num_coordinates, num_draws = rho.shape
    num_pairs = max((num_draws - 3) // 2, 0) + 1
    even = rho[:, 0 : 2 * num_pairs : 2]
    pair = even + rho[:, 1 : 2 * num_pairs : 2]
    is_end = ~(pair > 0.0)
    is_end[:, -1] = True
    end = is_end.argmax(axis=1)
    rows = np.arange(num_coordinates)
    monotone = np.minimum.accumulate(pair, axis=1)
    counted = np.where(np.arange(num_pairs) < end[:, None], monotone, 0.0).sum(axis=1)
    last = even[rows, end]
    last = np.where((last > 0.0) | (pair[rows, end] >= 0.0), last, 0.0)
    return -1.0 + 2.0 * counted + last
