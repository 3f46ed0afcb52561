"""Bridge sampling: estimate a normalising constant from draws and from points of a normal fitted to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from bayesmesh.diagnostics.autocovariance import effective_sample_size

MIN_DRAWS = 10
"""Fewest draws of half a chain."""

MIN_BATCHES = 4
"""Fewest batches of one half from which an error is computed; fewer chains are cut into pieces."""

MOST_CHAINS = 16
"""Largest number of chains; more are joined, because estimates from many short chains say less about the error."""

_MAX_STEPS, _TOLERANCE = 1000, 1e-10
_WELL_KNOWN = 10
"""Draws per coordinate from which a covariance is used without shrinkage."""

_EDGE = 1e-12
"""Least share of a variance that the others leave unexplained."""

LogDensityFn = Callable[[Float[np.ndarray, "draw coordinate"]], Float[np.ndarray, " draw"]]


class Bridged(NamedTuple):
    """A log normalising constant.

    Attributes:
        log_constant: in nats.
        error: the larger of the other two.
        error_within: from the relative mean squared error of both means, with the autocorrelation of the draws.
        error_between: from the estimates of single chains.
        num_parts: number of these estimates.
    """

    log_constant: float
    error: float
    error_within: float
    error_between: float
    num_parts: int


def bridge(
    positions: Float[np.ndarray, "chain draw coordinate"],
    log_density: LogDensityFn,
    seed: int,
) -> Bridged:
    """Return the log of the integral of a density, from draws of it.

    A normal is fitted to the first half of each chain and bridged with the second half, and vice versa; the estimate is
    the mean of the two.

    Args:
        positions: finite draws, float64; at least `2 * MIN_DRAWS` per chain.
        log_density: unnormalised log density at any positions.
        seed: of the draws from the normals.

    Reference:
        Meng and Wong 1996, "Simulating ratios of normalizing constants via a simple identity", equation 4.1;
        Gronau et al. 2017, doi:10.1016/j.jmp.2017.09.005, for the split and the effective number of draws; the error is
        that of Frühwirth-Schnatter 2004, doi:10.1111/j.1368-423X.2004.00125.x.
    """
    num_chains, num_draws, _ = positions.shape
    half = num_draws // 2
    halves = positions[:, :half], positions[:, half : 2 * half]
    at_draws = log_density(positions[:, : 2 * half].reshape(-1, positions.shape[2])).reshape(num_chains, 2, half)
    generator = np.random.default_rng([2, seed])
    found, errors, between, num_parts = [], [], [], 0
    for which in range(2):
        normal = fit_normal(halves[1 - which])
        points = normal.sample(generator, num_chains * half)
        ratio_draws = at_draws[:, which] - normal.log_density(halves[which])
        ratio_points = (log_density(points) - normal.log_density(points)).reshape(num_chains, half)
        log_constant, error = meet(ratio_draws, ratio_points)
        parts = [meet(d, p)[0] for d, p in zip(*map(_batches, (ratio_draws, ratio_points)), strict=True)]
        found.append(log_constant)
        errors.append(error)
        between.append(float(np.var(parts, ddof=1)) / len(parts))
        num_parts += len(parts)
    within = math.hypot(*errors) / 2
    spread = math.sqrt(sum(between)) / 2
    return Bridged(float(np.mean(found)), max(within, spread), within, spread, num_parts)


def join_chains(positions: Float[np.ndarray, "chain draw coordinate"]) -> Float[np.ndarray, "joined draw coordinate"]:
    """Join many chains into at most `MOST_CHAINS` long ones, each with the draws of several.

    >>> join_chains(np.zeros((512, 3, 2))).shape, join_chains(np.zeros((4, 3, 2))).shape
    ((16, 96, 2), (4, 3, 2))
    """
    num_chains, num_draws, width = positions.shape
    joined = max(number for number in range(1, MOST_CHAINS + 1) if num_chains % number == 0)
    return positions.reshape(joined, num_chains // joined * num_draws, width)


def _batches(ratios: Float[np.ndarray, "chain draw"]) -> list[np.ndarray]:
    """Return the ratios by chain; few chains are cut into pieces."""
    pieces = -(-MIN_BATCHES // len(ratios))
    return [part[None] for chain in ratios for part in np.array_split(chain, pieces)]


def meet(ratio_draws: Float[np.ndarray, "chain draw"], ratio_points: Float[np.ndarray, "..."]) -> tuple[float, float]:
    """Return the log constant from the optimal bridge function, and its standard error.

    Args:
        ratio_draws: log density minus log proposal at the draws.
        ratio_points: the same at draws from the proposal; minus infinity outside the support.

    Returns:
        Both NaN if the iteration for the constant has not converged.
    """
    points = ratio_points.ravel()
    points = np.where(np.isnan(points), -np.inf, points)
    draws = ratio_draws.ravel()
    effective = min(effective_draws(ratio_draws), float(draws.size))
    log_s1, log_s2 = (math.log(n / (effective + points.size)) for n in (effective, points.size))
    centre = float(np.median(draws))
    log_constant = 0.0
    for _ in range(_MAX_STEPS):
        above = points - centre - np.logaddexp(log_s1 + points - centre, log_s2 + log_constant)
        below = -np.logaddexp(log_s1 + draws - centre, log_s2 + log_constant)
        before = log_constant
        log_constant = _log_mean(above) - _log_mean(below)
        if abs(log_constant - before) < _TOLERANCE:
            break
    else:
        return math.nan, math.nan
    by_points = np.exp(points - centre - log_constant - np.logaddexp(log_s1 + points - centre - log_constant, log_s2))
    by_draws = np.exp(-np.logaddexp(log_s1 + draws - centre - log_constant, log_s2)).reshape(ratio_draws.shape)
    error = math.sqrt(
        by_points.var() / by_points.mean() ** 2 / points.size
        + by_draws.var() / by_draws.mean() ** 2 / effective_draws(by_draws)
    )
    return centre + log_constant, error


def _log_mean(values: Float[np.ndarray, " value"]) -> float:
    return float(logsumexp(values)) - math.log(values.size)


def effective_draws(values: Float[np.ndarray, "chain draw"]) -> float:
    """Return the effective sample size of a series with one row per chain; a single chain is cut into halves."""
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    found = float(effective_sample_size(halves[None])[0])
    return found if math.isfinite(found) else float(values.size)


class Normal(NamedTuple):
    """A normal distribution; `factor` is the lower Cholesky factor of its covariance."""

    mean: Float[np.ndarray, " coordinate"]
    factor: Float[np.ndarray, "coordinate coordinate"]

    def sample(self, generator: np.random.Generator, count: int) -> Float[np.ndarray, "draw coordinate"]:
        """Return independent points."""
        return self.mean + generator.standard_normal((count, len(self.mean))) @ self.factor.T

    def log_density(self, positions: Float[np.ndarray, "*batch coordinate"]) -> Float[np.ndarray, "*batch"]:
        """Return the log density of positions."""
        flat = positions.reshape(-1, len(self.mean)) - self.mean
        standard = solve_triangular(self.factor, flat.T, lower=True)
        constant = np.log(np.diag(self.factor)).sum() + 0.5 * len(self.mean) * math.log(2 * math.pi)
        return (-0.5 * np.square(standard).sum(axis=0) - constant).reshape(positions.shape[:-1])


def fit_normal(positions: Float[np.ndarray, "*batch coordinate"]) -> Normal:
    """Return the normal with the mean and the covariance of positions.

    With fewer than ten draws per coordinate, correlations are shrunk towards zero.

    Reference:
        Ledoit and Wolf 2004, doi:10.1016/S0047-259X(03)00096-4, lemma 3.3, on standardised coordinates.
    """
    flat = positions.reshape(-1, positions.shape[-1])
    num, width = flat.shape
    mean, scale = flat.mean(axis=0), flat.std(axis=0)
    scale = np.where(scale > 0, scale, 1e-8 * np.maximum(np.abs(mean), 1.0))
    standard = (flat - mean) / scale
    correlation = standard.T @ standard / num
    share = _EDGE
    if num < _WELL_KNOWN * width:
        noise = (np.square(np.square(standard).sum(axis=1)).mean() - np.square(correlation).sum()) / num
        apart = np.square(correlation - np.eye(width)).sum()
        share = min(1.0, max(_EDGE, noise / apart)) if apart > 0 else 1.0
    correlation *= 1 - share
    correlation[np.diag_indices(width)] = 1.0
    return Normal(mean, scale[:, None] * np.linalg.cholesky(correlation))
