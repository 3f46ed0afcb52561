"""Autocovariances by FFT and the effective sample size by Geyer's initial monotone sequence, for many coordinates.

Arrays are ``(coordinate, chain, draw)``, float64 and finite. One inverse transform serves all chains of a coordinate;
the first one covers only as many lags as most chains need. For short chains and for indicators, the sum of two
autocorrelations can be exactly zero, and rounding then decides where Geyer's sequence ends. Such coordinates are
computed again, with sums in the same order as in arviz_stats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.fft
from jaxtyping import Bool, Float

_CONSTANT_RANGE = float(np.finfo(np.float64).resolution)
"""Draws with a smaller range count as constant, and constant draws as independent, as in arviz_stats."""

_FEWEST_LAGS = 32
"""Fewest lags of the first transform, which has a quarter of the draws if that is more; slower chains need a second
transform, with all lags."""

_UNDECIDED = 1e-11
"""Distance of a pair of autocorrelations from zero within which rounding may decide its sign."""


class Centred(NamedTuple):
    """Draws centred about the means of their chains, from which R-hat and effective sample sizes are computed.

    Attributes:
        draws: as given.
        means: of each chain.
        deviations: draws less the mean of their chain.
        within: mean over chains of the variance, with ddof=1.
    """

    draws: Float[np.ndarray, "coordinate chain draw"]
    means: Float[np.ndarray, "coordinate chain"]
    deviations: Float[np.ndarray, "coordinate chain draw"]
    within: Float[np.ndarray, " coordinate"]


def centre(x: Float[np.ndarray, "coordinate chain draw"]) -> Centred:
    """Return the draws with the means and variances of their chains; the variance is NaN for one draw per chain.

    >>> centre(np.array([[[0.0, 2.0], [4.0, 8.0]]])).within
    array([5.])
    """
    means = x.mean(axis=-1)
    deviations = x - means[..., None]
    squares = np.square(deviations).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Centred(x, means, deviations, (squares / (x.shape[-1] - 1.0)).mean(axis=-1))


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
    return effective_size(centre(x))


def effective_size(centred: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return the effective sample size of draws that are already centred; see `effective_sample_size`."""
    _, num_chains, num_draws = centred.deviations.shape
    num_lags = min(num_draws, max(_FEWEST_LAGS, num_draws // 4))
    tau, is_open, is_undecided = _integrated_time(_autocorrelation(centred, num_lags), num_draws)
    rows = np.flatnonzero(is_open)
    if rows.size:
        slow = Centred(*(part[rows] for part in centred))
        tau[rows], _, is_undecided[rows] = _integrated_time(_autocorrelation(slow, num_draws), num_draws)
    rows = np.flatnonzero(is_undecided)
    if rows.size:
        tau[rows], _, _ = _integrated_time(_reference_autocorrelation(centred.draws[rows]), num_draws)
    total = num_chains * num_draws
    ess = total / np.maximum(tau, 1 / np.log10(total))
    flat = centred.draws.reshape(len(ess), total)
    return np.where(flat.max(axis=1) - flat.min(axis=1) < _CONSTANT_RANGE, float(total), ess)


def _autocorrelation(centred: Centred, num_lags: int) -> Float[np.ndarray, "coordinate lag"]:
    """Return the autocorrelation of all chains combined at the first lags; NaN for draws that do not vary."""
    _, num_chains, num_draws = centred.deviations.shape
    length = scipy.fft.next_fast_len(num_draws + num_lags, real=True)
    spectrum = scipy.fft.rfft(centred.deviations, n=length, axis=-1)
    parts = spectrum.view(np.float64)
    squares = np.square(parts, out=parts).sum(axis=1)
    power = squares[:, ::2] + squares[:, 1::2]
    covariance = scipy.fft.irfft(power, n=length, axis=-1)[:, :num_lags] / (num_chains * num_draws)
    return _of_covariance(covariance, centred.within, centred.means, num_draws)


def _reference_autocorrelation(x: Float[np.ndarray, "coordinate chain draw"]) -> Float[np.ndarray, "coordinate lag"]:
    """Return the autocorrelation at all lags, rounded as arviz_stats rounds it."""
    num_draws = x.shape[-1]
    # Copied so that NumPy sums the chains of one lag pairwise, as for a single coordinate.
    covariance = np.ascontiguousarray(np.moveaxis(autocovariance(x), 1, -1)).mean(axis=-1)
    return _of_covariance(covariance, covariance[:, 0] * num_draws / (num_draws - 1.0), x.mean(axis=-1), num_draws)


def _of_covariance(
    covariance: Float[np.ndarray, "coordinate lag"],
    within: Float[np.ndarray, " coordinate"],
    means: Float[np.ndarray, "coordinate chain"],
    num_draws: int,
) -> Float[np.ndarray, "coordinate lag"]:
    var_plus = within * (num_draws - 1.0) / num_draws + means.var(axis=-1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1.0 - (within[:, None] - covariance) / var_plus[:, None]
    rho[:, 0] = 1.0
    return rho


def _integrated_time(
    rho: Float[np.ndarray, "coordinate lag"], num_draws: int
) -> tuple[Float[np.ndarray, " coordinate"], Bool[np.ndarray, " coordinate"], Bool[np.ndarray, " coordinate"]]:
    """Return Geyer's integrated autocorrelation time.

    Lags are combined in pairs (0, 1), (2, 3), ... up to the first pair whose sum is not positive. Sums of earlier pairs
    are made monotone; of the last pair, only a positive even lag counts.

    Args:
        rho: autocorrelations, at all lags or at the first ones.
        num_draws: total number of lags.

    Returns:
        The time, NaN where autocorrelations are NaN; whether the sequence continues beyond these lags, so that the time
        is unknown; and whether rounding may have decided where it ends.
    """
    most = max((num_draws - 3) // 2, 0) + 1
    num_pairs = min(most, rho.shape[1] // 2)
    even = rho[:, 0 : 2 * num_pairs : 2]
    pair = even + rho[:, 1 : 2 * num_pairs : 2]
    is_end = ~(pair > 0.0)
    is_open = ~is_end.any(axis=1) if num_pairs < most else np.zeros(len(rho), dtype=bool)
    is_end[:, -1] = True
    end = is_end.argmax(axis=1)
    last_pair = int(end.max(initial=0)) + 1
    even, pair = even[:, :last_pair], pair[:, :last_pair]
    is_counted = np.arange(last_pair) < end[:, None]
    rows = np.arange(len(rho))
    monotone = np.where(is_counted, np.minimum.accumulate(pair, axis=1), 0.0)
    # Summed one pair after another: otherwise rounding depends on the number of terms, which other coordinates determine.
    counted = np.cumsum(monotone, axis=1)[:, -1]
    last = even[rows, end]
    last = np.where((last > 0.0) | (pair[rows, end] >= 0.0), last, 0.0)
    is_counted[rows, end] = True
    is_undecided = ((np.abs(pair) < _UNDECIDED) & is_counted).any(axis=1)
    tau = np.where(np.isnan(rho[:, 1]), np.nan, -1.0 + 2.0 * counted + last)
    return tau, is_open, is_undecided
