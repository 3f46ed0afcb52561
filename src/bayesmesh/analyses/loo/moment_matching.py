"""Repair leave-one-out scores with a high Pareto k: move draws towards the posterior without the row, then weight.

Draws are moved in unconstrained coordinates to match the weighted mean, then also the weighted variances, then the
weighted covariance, as long as Pareto k falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from bayesmesh.diagnostics.psis import smooth_weights

MOST_COORDINATES = 1000
"""Largest number of coordinates; positions with more are not moved."""

_DRAWS_FOR_COVARIANCE = 10
"""Fewest draws per coordinate for a covariance to be matched."""

_MAX_MOVES = 30

_LEAST_GAIN = 0.05
"""Smallest decrease of k for a move to be kept: each move takes a pass over all rows at all draws."""

LogDensityFn = Callable[[Float[np.ndarray, "draw coordinate"]], Float[np.ndarray, " draw"]]


class Affine(NamedTuple):
    """The map ``position @ matrix.T + shift``."""

    matrix: Float[np.ndarray, "coordinate coordinate"]
    shift: Float[np.ndarray, " coordinate"]

    def apply(self, positions: Float[np.ndarray, "draw coordinate"]) -> Float[np.ndarray, "draw coordinate"]:
        """Return the images of positions."""
        return positions @ self.matrix.T + self.shift

    def invert(self, positions: Float[np.ndarray, "draw coordinate"]) -> Float[np.ndarray, "draw coordinate"]:
        """Return the positions that the map takes to these."""
        return np.linalg.solve(self.matrix, (positions - self.shift).T).T

    def after(self, first: Affine) -> Affine:
        """Return the map that applies `first` and then this one."""
        return Affine(self.matrix @ first.matrix, self.matrix @ first.shift + self.shift)


class Matched(NamedTuple):
    """The leave-one-out score of one row.

    Attributes:
        elpd: log predictive density, in nats.
        pareto_k: of its weights.
        mcse: Monte Carlo standard error of `elpd`.
        positions: (draw, coordinate), half of them moved.
        weights: (draw,) of these, which sum to 1.
    """

    elpd: float
    pareto_k: float
    mcse: float
    positions: np.ndarray
    weights: np.ndarray


def match_moments(
    positions: Float[np.ndarray, "draw coordinate"],
    log_density: LogDensityFn,
    log_likelihood: LogDensityFn,
    r_eff: float,
    limit: float,
) -> Matched | None:
    """Return the score of a row from moved draws; None if no move lowers Pareto k.

    Half of the draws are moved by the whole map and half are not; all are weighted by the mixture of both densities.

    Args:
        positions: draws of the posterior of all rows, float64.
        log_density: unnormalised log posterior density given all rows, at any positions.
        log_likelihood: log likelihood of the row that is left out.
        r_eff: relative efficiency of the draws.
        limit: Pareto k below which no further move is tried.

    Reference:
        Paananen, Piironen, Bürkner and Vehtari 2021, doi:10.1007/s11222-020-09982-2, algorithm 1 and section 3.3.
    """
    at_start = log_density(positions)
    moved, total = positions, None
    weights, k = _smooth(-log_likelihood(positions), r_eff)
    first_k = k
    for _ in range(_MAX_MOVES):
        if k < limit:
            break
        for move in _moves(moved, np.exp(weights)):
            tried = move.apply(moved)
            found, tried_k = _smooth(log_density(tried) - log_likelihood(tried) - at_start, r_eff)
            if tried_k < k - _LEAST_GAIN:
                moved, weights, k = tried, found, tried_k
                total = move if total is None else move.after(total)
                break
        else:
            break
    if total is None:
        return None
    matched = _split(positions, total, log_density, log_likelihood, r_eff)
    return matched if matched.pareto_k < first_k else None


def _smooth(log_ratios: Float[np.ndarray, " draw"], r_eff: float) -> tuple[Float[np.ndarray, " draw"], float]:
    """Return normalised log weights and Pareto k, infinite where a ratio is not finite."""
    if not np.isfinite(log_ratios).all():
        return log_ratios, math.inf
    weights, k = smooth_weights(log_ratios[None], np.array([r_eff]))
    return weights[0], float(k[0])


def _moves(positions: Float[np.ndarray, "draw coordinate"], weights: Float[np.ndarray, " draw"]) -> Iterator[Affine]:
    """Yield maps that match the weighted mean, then also the weighted variances, then the weighted covariance."""
    num, width = positions.shape
    mean, wanted = positions.mean(axis=0), weights @ positions
    yield Affine(np.eye(width), wanted - mean)
    variance = positions.var(axis=0)
    wanted_variance = weights @ np.square(positions - wanted)
    if (variance > 0).all() and (wanted_variance > 0).all():
        scale = np.sqrt(wanted_variance / variance)
        yield Affine(np.diag(scale), wanted - scale * mean)
    if num < _DRAWS_FOR_COVARIANCE * width:
        return
    around = positions - wanted
    try:
        factor = np.linalg.cholesky(np.cov(positions.T, ddof=0).reshape(width, width))
        wanted_factor = np.linalg.cholesky((around * weights[:, None]).T @ around)
    except np.linalg.LinAlgError:
        return
    matrix = solve_triangular(factor, wanted_factor.T, lower=True, trans="T").T
    yield Affine(matrix, wanted - matrix @ mean)


def _split(
    positions: Float[np.ndarray, "draw coordinate"],
    total: Affine,
    log_density: LogDensityFn,
    log_likelihood: LogDensityFn,
    r_eff: float,
) -> Matched:
    is_moved = np.arange(len(positions)) % 2 == 0
    mixed = np.where(is_moved[:, None], total.apply(positions), positions)
    own, row = log_density(mixed), log_likelihood(mixed)
    before = log_density(total.invert(mixed)) - float(np.linalg.slogdet(total.matrix)[1])
    weights, k = _smooth(own - row - np.logaddexp(own, before), r_eff)
    if not math.isfinite(k):
        return Matched(-math.inf, math.inf, math.inf, mixed, np.full(len(mixed), math.nan))
    elpd = float(logsumexp(weights + row))
    spread = np.exp(weights) * np.expm1(np.clip(row - elpd, None, 300))
    return Matched(elpd, k, float(np.sqrt(np.square(spread).sum() / r_eff)), mixed, np.exp(weights))
