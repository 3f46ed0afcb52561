"""Compute model weights from pointwise log scores: stacking and pseudo-BMA+."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from scipy.special import softmax

TOLERANCE = 1e-6
"""Tolerated violation of the optimality condition of stacking weights; the iteration stops at a hundredth of it."""

NUM_REPLICATES = 1000
"""Number of replicates of the Bayesian bootstrap."""

_MAX_STEPS = 200
_REPLICATE_BYTES = 64 * 2**20


class Stacking(NamedTuple):
    """Stacking weights.

    Attributes:
        weights: (model,), non-negative, summing to 1.
        gradient: (model,), derivative of the mean log score of the weighted average with respect to each weight. At
            the optimum, it is 1 for each positive weight and at most 1 for the others.
        residual: largest violation of this condition.
    """

    weights: Float[np.ndarray, " model"]
    gradient: Float[np.ndarray, " model"]
    residual: float


def stack(log_scores: Float[np.ndarray, "row model"]) -> Stacking:
    """Return the weights that maximise the mean log score of the weighted average of predictive distributions.

    The mean log score is concave in the weights. If the sum of the weights is subtracted from it, the constraint on
    their sum can be dropped without moving the maximum. Each step then maximises a quadratic approximation over
    non-negative weights.

    Args:
        log_scores: log predictive density of each row under each model, float64; at least one is finite in each row.

    Raises:
        ValueError: no model has a finite log score for some row.

    Reference:
        Yao, Vehtari, Simpson, Gelman 2018, doi:10.1214/17-BA1091, section 3, for the weights; Kim, Carbonetto,
        Stephens, Anitescu 2020, doi:10.1080/10618600.2019.1689985, for the steps.

    >>> found = stack(np.log(np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])))
    >>> found.weights.round(4).tolist(), found.residual < 1e-6
    ([0.8472, 0.1528], True)
    """
    best = log_scores.max(axis=1, keepdims=True)
    if not np.isfinite(best).all():
        raise ValueError(f"row {int(np.argmin(np.isfinite(best)))} has no finite log score")
    density = np.exp(log_scores - best)
    num_models = density.shape[1]
    weights = np.full(num_models, 1 / num_models)
    for _ in range(_MAX_STEPS):
        found = _assess(density, weights)
        if found.residual < TOLERANCE / 100:
            break
        weights = _step(density, weights, found.gradient)
    total = weights.sum()
    return _assess(density, weights / total)


def _assess(density: Float[np.ndarray, "row model"], weights: Float[np.ndarray, " model"]) -> Stacking:
    gradient = (density / (density @ weights)[:, None]).mean(axis=0)
    is_used = weights > 0
    beyond = np.where(is_used, np.abs(gradient - 1), gradient - 1)
    return Stacking(weights, gradient, float(max(beyond.max(), 0.0)))


def _step(
    density: Float[np.ndarray, "row model"], weights: Float[np.ndarray, " model"], gradient: Float[np.ndarray, " model"]
) -> Float[np.ndarray, " model"]:
    """Return improved weights: the maximum of a quadratic approximation, or a point on the line towards it."""
    scaled = density / (density @ weights)[:, None]
    curvature = scaled.T @ scaled / len(scaled)
    # Models with identical predictions make the curvature singular.
    curvature[np.diag_indices_from(curvature)] += 1e-10 * np.trace(curvature)
    factor = np.linalg.cholesky(curvature)
    target, _ = nnls(factor.T, solve_triangular(factor, curvature @ weights + gradient - 1, lower=True))
    score, slope = _objective(density, weights), float((gradient - 1) @ (target - weights))
    length = 1.0
    while length > 1e-10:
        made = weights + length * (target - weights) if length < 1 else target
        if _objective(density, made) >= score + 1e-4 * length * slope - 1e-15 * abs(score):
            return made
        length /= 2
    return weights


def _objective(density: Float[np.ndarray, "row model"], weights: Float[np.ndarray, " model"]) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(density @ weights).mean() - weights.sum())


def share_draws(weights: Float[np.ndarray, " model"], total: int) -> list[int]:
    """Return the number of draws of an average that each model contributes, by the method of largest remainders.

    Args:
        weights: weights of the models, summing to 1.
        total: total number of draws.

    >>> share_draws(np.array([0.5, 0.333, 0.167]), 10)
    [5, 3, 2]
    """
    exact = np.asarray(weights) * total
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return [int(count) for count in counts]


def pseudo_bma(log_scores: Float[np.ndarray, "row model"], seed: int = 0) -> Float[np.ndarray, " model"]:
    """Return pseudo-BMA+ weights: the softmax of the summed log scores, averaged over a Bayesian bootstrap.

    Args:
        log_scores: log predictive density of each row, or its sum over each group of rows, under each model, float64,
            finite.
        seed: seed of the bootstrap.

    Reference:
        Yao, Vehtari, Simpson, Gelman 2018, doi:10.1214/17-BA1091, section 3.4.

    >>> pseudo_bma(np.zeros((30, 2))).tolist()
    [0.5, 0.5]
    """
    num_rows, num_models = log_scores.shape
    generator = np.random.default_rng(seed)
    centred = log_scores - log_scores.mean(axis=1, keepdims=True)
    total, done = np.zeros(num_models), 0
    while done < NUM_REPLICATES:
        count = min(NUM_REPLICATES - done, max(1, _REPLICATE_BYTES // (8 * num_rows)))
        shares = generator.standard_exponential((count, num_rows))
        sums = num_rows * (shares @ centred) / shares.sum(axis=1, keepdims=True)
        total += softmax(sums, axis=1).sum(axis=0)
        done += count
    return total / NUM_REPLICATES
