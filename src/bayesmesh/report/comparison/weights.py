"""Compute model weights from pointwise log scores: stacking, also by cell of the data with cross-validated pooling, and pseudo-BMA+."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.linalg import solve_triangular
from scipy.optimize import minimize, nnls
from scipy.special import log_softmax, logsumexp, softmax

from bayesmesh.analyses.figures import formats

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


SPREADS = (0.0, 0.25, 0.5, 1.0, 2.0)
"""Standard deviations of logits between cells, from which cross-validation chooses; 0 gives one set of weights."""

NUM_FOLDS = 5

MOST_CELLS = 100
"""Largest number of cells, unless they are bins."""

NUM_BINS = 5
"""Number of bins of about equal counts for a number with more distinct values than this."""

_CENTRE_SCALE = 3.0
"""Prior standard deviation of the shared logits, around which those of the cells vary."""


class Cells(NamedTuple):
    """Assignment of rows to cells.

    Attributes:
        codes: (row,), the cell of each row: 0, 1, ...
        labels: one label for each cell.
    """

    codes: Int[np.ndarray, " row"]
    labels: tuple[str, ...]


class HierarchicalStacking(NamedTuple):
    """Stacking weights by cell.

    Attributes:
        weights: non-negative weights that sum to 1 in each cell.
        spread: standard deviation chosen from `SPREADS`.
        log_scores: log score of each row under the average whose weights come from the other folds.
        log_scores_same: log score of each row under the average whose weights come from the other folds and are the
            same in all cells.
    """

    weights: Float[np.ndarray, "cell model"]
    spread: float
    log_scores: Float[np.ndarray, " row"]
    log_scores_same: Float[np.ndarray, " row"]


def make_cells(values: Shaped[np.ndarray, " row"], levels: Sequence[str] = ()) -> Cells:
    """Return the cells of a feature: its distinct values or, for a number with many values, bins of about equal counts.

    Args:
        values: numbers, strings, or codes of levels.
        levels: name of each code; empty if values are not codes.

    Raises:
        ValueError: a value is not finite, or there are more than `MOST_CELLS` distinct values.

    >>> make_cells(np.array([1, 0, 1]), ["ash", "elm"])
    Cells(codes=array([1, 0, 1]), labels=('ash', 'elm'))
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("it has values that are not finite")
    distinct, codes = np.unique(values, return_inverse=True)
    if levels or values.dtype.kind not in "iuf" or len(distinct) <= NUM_BINS:
        if len(distinct) > MOST_CELLS:
            raise ValueError(f"it has {len(distinct):,} levels, and at most {MOST_CELLS} are weighted apart")
        return Cells(codes.reshape(-1), tuple(levels[int(v)] if levels else str(v) for v in distinct))
    edges = np.unique(np.quantile(values, np.arange(1, NUM_BINS) / NUM_BINS))
    edges = edges[edges > distinct[0]]
    ends = formats.distinct([float(end) for end in (distinct[0], *edges, distinct[-1])])
    labels = tuple(f"{low} to {high}" for low, high in itertools.pairwise(ends))
    return Cells(np.searchsorted(edges, values, side="right"), labels)


def stack_by_cell(
    log_scores: Float[np.ndarray, "row model"],
    cells: Cells,
    clusters: Shaped[np.ndarray, " row"] | None = None,
    seed: int = 0,
) -> HierarchicalStacking:
    """Return stacking weights for each cell, with logits that are normally distributed around shared ones.

    The weights maximise the log score of the rows plus the log prior of the logits. The standard deviation between
    cells is chosen by cross-validation over rows or whole clusters. The log scores come from the same folds, and
    those of each fold from the standard deviation that the other folds choose, so overfitting does not raise them.

    Args:
        log_scores: log predictive density of each row under each model, float64, finite.
        cells: cells of the rows.
        clusters: number of the group of each row, if rows of a group are not independent; None if they are.
        seed: seed of the folds.

    Reference:
        Yao, Pirš, Vehtari, Gelman 2022, "Bayesian hierarchical stacking: some models are (somewhere) useful",
        doi:10.1214/21-BA1287; the posterior mode replaces their draws.
    """
    num_rows = len(log_scores)
    # A group stays in one fold, so that no row is scored with weights fitted to its own group.
    unit = np.arange(num_rows) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    folds = (np.random.default_rng([4, seed]).permutation(unit.max() + 1) % NUM_FOLDS)[unit]
    num_cells = len(cells.labels)
    found = np.empty((len(SPREADS), num_rows))
    for fold in range(NUM_FOLDS):
        fits, left = folds != fold, folds == fold
        for i, spread in enumerate(SPREADS):
            weights = _fit(log_scores[fits], cells.codes[fits], num_cells, spread)
            found[i, left] = logsumexp(log_scores[left] + np.log(weights)[cells.codes[left]], axis=1)
    held_out = found[0].copy()
    for fold in range(NUM_FOLDS):
        # Rows that choose a spread for themselves would never score worse than with equal weights.
        left = folds == fold
        held_out[left] = found[int(found[:, ~left].sum(axis=1).argmax()), left]
    spread = SPREADS[int(found.sum(axis=1).argmax())]
    return HierarchicalStacking(_fit(log_scores, cells.codes, num_cells, spread), spread, held_out, found[0])


def _fit(
    log_scores: Float[np.ndarray, "row model"], codes: Int[np.ndarray, " row"], num_cells: int, spread: float
) -> Float[np.ndarray, "cell model"]:
    """Return the weights at the joint posterior mode of the shared logits and each cell's deviations from them."""
    num_models = log_scores.shape[1]

    def logits(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = parameters.reshape(1 + num_cells, num_models)
        return _CENTRE_SCALE * parts[0] + spread * parts[1:], parts[0], parts[1:]

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        by_cell, shared, apart = logits(parameters)
        of_rows = log_scores + log_softmax(by_cell, axis=1)[codes]
        total = logsumexp(of_rows, axis=1)
        excess = np.exp(of_rows - total[:, None]) - softmax(by_cell, axis=1)[codes]
        slope = np.zeros((num_cells, num_models))
        np.add.at(slope, codes, excess)
        gradient = np.concatenate([_CENTRE_SCALE * slope.sum(axis=0)[None] - shared, spread * slope - apart])
        value = total.sum() - 0.5 * np.square(shared).sum() - 0.5 * np.square(apart).sum()
        return -float(value), -gradient.ravel()

    start = np.zeros((1 + num_cells) * num_models)
    return softmax(logits(minimize(loss, start, jac=True, method="L-BFGS-B").x)[0], axis=1)
