"""Find outcomes that columns and groups explain exactly: their posterior density is unbounded as sigma goes to 0.

With all residuals 0, N rows and effects of rank r, the marginal likelihood of sigma grows as sigma**-(N - r), which is
not integrable at 0 unless the prior of sigma falls faster. Without surplus rows, such as with one row for each level, the
posterior is proper.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import numpy as np

from bayesmesh.config.prior_texts import parse_prior
from bayesmesh.models.glm.formula import KEY, Formula

_log = logging.getLogger("bayesmesh")

_EXACT = 1e-13
"""Sum of squared residuals, as a share of that of the outcome, up to which it is rounding error, of either sign."""

_RANK = 1e-6
"""Eigenvalue, as a share of the largest, up to which a direction is not counted: its residuals would be rounding alone."""

LEAST_SPREAD = 0.01
"""Variance of the outcome, as a share of its mean square, below which its products keep too few digits for a verdict."""


def surplus_rows(gram: np.ndarray, levels: np.ndarray, num_rows: float) -> float:
    """Return by how many the rows exceed the rank of the terms that explain them exactly; 0 if no terms do.

    Args:
        gram: (column + 1, column + 1), products of the columns followed by the outcome.
        levels: (level, effect, effect + column + 1), products within levels of effects with effects, columns and outcome.
        num_rows: sum of the weights of the rows.

    >>> y, x = np.array([1.0, 2.0, 3.0]), np.ones(3)
    >>> rows = np.stack([x, np.arange(3.0), y])
    >>> surplus_rows(rows @ rows.T, np.zeros((0, 0, 3)), 3.0)
    1.0
    """
    num_effects = levels.shape[1]
    within, others = levels[:, :, :num_effects], levels[:, :, num_effects:]
    inverse = np.linalg.pinv(within, rcond=_RANK, hermitian=True)
    left = gram - np.einsum("lqp,lqr,lrs->ps", others, inverse, others)
    # Columns of unit length, so that the rank does not depend on their units.
    lengths = np.sqrt(np.maximum(np.diagonal(gram)[:-1], 0.0))
    lengths[lengths == 0] = 1.0
    columns, cross = left[:-1, :-1] / np.outer(lengths, lengths), left[:-1, -1] / lengths
    values, vectors = np.linalg.eigh(columns)
    kept = values > _RANK * values.max(initial=0.0)
    residual = left[-1, -1] - np.sum(np.square(vectors[:, kept].T @ cross) / values[kept])
    if abs(residual) > _EXACT * gram[-1, -1]:
        return 0.0
    rank = int(np.sum(np.linalg.matrix_rank(within, rtol=_RANK, hermitian=True))) + int(kept.sum())
    return max(num_rows - rank, 0.0)


def _order_at_0(priors: Mapping[str, str]) -> float:
    """Return the power of sigma with which its prior density falls towards 0."""
    if "sigma" not in priors:
        return 0.0
    prior = parse_prior(priors["sigma"], "key 'model.priors.sigma'")
    match prior.family:
        case "log_normal" | "inverse_gamma":
            return math.inf
        case "gamma" | "beta":
            return prior.parameters[0] - 1
        case "uniform":
            return math.inf if prior.parameters[0] > 0 else 0.0
    return 0.0


def warn_of_exact_fit(formula: Formula, priors: Mapping[str, str], group: int | None, surplus: float) -> None:
    """Warn of an outcome that is explained exactly, unless the prior of sigma keeps the posterior proper.

    A warning and not an error: sums over rows cannot distinguish residuals of 3e-7 of the outcome from rounding.

    Args:
        formula: formula of the model.
        priors: the priors as they were given.
        group: number of the group term that explains it together with the columns; None without groups.
        surplus: from `surplus_rows`.
    """
    if surplus - _order_at_0(priors) < 1:
        return
    what = "the columns" if group is None else f"the groups '{formula.groups[group].group}' and the columns"
    _log.warning(
        "warning: %s: %s explain the outcome '%s' exactly, but for rounding; then nothing keeps sigma away from 0, the posterior is"
        " improper, and chains fail. Leave out the term that determines the outcome; or, if the outcome is one of each group and not"
        " of each row, keep one row of each group; or give sigma a prior that excludes 0: priors: {sigma: \"log_normal(0, 1)\"}",
        KEY, what, formula.outcome.text,
    )  # fmt: skip
