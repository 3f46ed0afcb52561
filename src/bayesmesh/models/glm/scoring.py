"""Coefficients, effects of one group, and their variances from sums of products, by Fisher's scoring.

The variances are those of the mode of their restricted likelihood with a wide prior (Longford 1987, doi:10.1093/biomet/74.4.817).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_ITERATIONS, _LEAST, _MOST = 12, 0.01, 10.0
"""Steps of scoring, the cost of which grows with the number of levels, not with that of rows; and the least and the largest factor of
a variance in one of them."""

_SINGULAR = 1e-12
"""Share of a column that others do not determine, below which it is rounding error."""

_FEW_LEVELS = 10
"""Number of levels from which correlations are taken by half."""

_SPARE_ROWS = 10
"""Number of rows beyond that of columns from which residuals tell how far least squares may be off."""


class Sums(NamedTuple):
    """Weighted sums of products over rows.

    Attributes:
        num_rows: sum of the weights of the rows.
        num_used: that of the rows about which `Family.working` says something.
        gram: (column + 1, column + 1), products of the columns followed by the outcome.
        levels: (level, effect, effect + column + 1), products of effects with effects, columns and outcome.
    """

    num_rows: float
    num_used: float
    gram: np.ndarray
    levels: np.ndarray

    @property
    def of_levels(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Products of effects with effects, (level, effect, effect), with columns and with the outcome, (level, effect)."""
        q = self.levels.shape[1]
        return self.levels[:, :, :q], self.levels[:, :, q:-1], self.levels[:, :, -1]


class Fit(NamedTuple):
    """A fit with the effects of one group.

    Attributes:
        coefficients: (column,).
        precision: (column, column), precision of the coefficients with the effects integrated out.
        effects: (level, effect).
        dispersion: variance of a row of unit weight.
        log_sigma_error: standard deviation of the log of its root; 1 where the dispersion is given.
        sd: (2, effect), standard deviations of the effects, and of the logs of these estimates.
        correlation: (effect, effect), Cholesky factor of the correlations, drawn towards 0 where few levels tell of them.
        least_squares: (2, column), coefficients without their prior, and their standard errors.
    """

    coefficients: np.ndarray
    precision: np.ndarray
    effects: np.ndarray
    dispersion: float
    log_sigma_error: float
    sd: np.ndarray
    correlation: np.ndarray
    least_squares: np.ndarray


class _Given(NamedTuple):
    """Coefficients and effects given the variances, the effects as L z, where L L^T is their covariance and z standard normal.

    Attributes:
        coefficients: (column,), at their mode.
        information: (column, column), inverse covariance of the coefficients without their prior, with the effects integrated out.
        right: (column,), its product with the coefficients without their prior.
        normals: (level, effect), mean of z.
        remaining: (level, effect, effect), covariance of z given the coefficients.
        residual: squared residuals over the dispersion, expected over the effects.
    """

    coefficients: np.ndarray
    information: np.ndarray
    right: np.ndarray
    normals: np.ndarray
    remaining: np.ndarray
    residual: float

    @property
    def squares(self) -> np.ndarray:
        """Expected sum of z z^T over the levels, (effect, effect)."""
        return np.asarray(np.einsum("lq,lr->qr", self.normals, self.normals) + self.remaining.sum(0))


def least_squares(information: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return coefficients without a prior, and their standard errors, which are huge for what rows do not determine, (2, column, ...).

    Args:
        information: (column, column), inverse covariance of the coefficients.
        right: (column, ...), its product with the coefficients.

    >>> least_squares(np.array([[4.0, 0.0], [0.0, 0.0]]), np.array([8.0, 0.0])).round(6).tolist()
    [[2.0, 0.0], [0.5, 1000000.0]]
    """
    lengths = np.sqrt(np.maximum(np.diagonal(information), 0))
    lengths = np.where(lengths > 0, lengths, 1.0)
    inverse = np.linalg.inv(information / np.outer(lengths, lengths) + _SINGULAR * np.eye(len(lengths)))
    units = lengths.reshape(-1, *(1 for _ in right.shape[1:]))
    errors = np.sqrt(np.abs(np.diagonal(inverse))) / lengths
    return np.stack([np.tensordot(inverse, right / units, axes=1) / units, errors.reshape(units.shape) + 0 * right])


def score(sums: Sums, ridge: np.ndarray, unit: float, given: float | None, *, is_correlated: bool) -> Fit:
    """Return the fit with a given dispersion, or with one that is estimated.

    Each step moves the variances by the inverse of their expected information times the gradient of their density with a wide
    prior: the covariance L L^T of the effects to L (1 + S) L^T, where S is symmetric, and diagonal for uncorrelated effects.

    Args:
        sums: sums of products over rows.
        ridge: (column, column), precision of the prior of the coefficients.
        unit: unit of the outcome, of which a standard deviation of the rows is at least a millionth.
        given: the dispersion, if it is known.
        is_correlated: whether the effects of a level are correlated.
    """
    width, num_effects = len(ridge), sums.levels.shape[1]
    gram, cross, total = sums.gram[:-1, :-1], sums.gram[:-1, -1], sums.gram[-1, -1]
    plain = np.linalg.solve(gram + ridge, cross) if width else cross
    spread = max(float(total - plain @ cross) / max(sums.num_used, 1.0), 1e-12 * unit**2)
    dispersion = spread if given is None else given
    size = np.einsum("lqq->q", sums.of_levels[0]) / max(sums.gram[0, 0], sums.num_used, 1e-12)
    widest = 4 * spread / np.where(size > 0, size, 1.0)
    factor = np.diag(np.sqrt(widest) / 4)
    free = np.arange(num_effects**2) if is_correlated else np.arange(num_effects) * (num_effects + 1)
    for _ in range(_ITERATIONS):
        rest, before = _given(sums, ridge, factor, dispersion), factor
        known = _information(sums, rest.remaining, free, has_dispersion=given is None)
        # With a prior of S worth one level.
        of_effects = rest.squares - (len(sums.levels) - 1) * np.eye(num_effects) - factor.T @ (factor / widest[:, None])
        of_dispersion = 0.0 if given is not None else rest.residual - sums.num_used
        step = np.linalg.solve(known + np.eye(len(known)), np.append(of_effects.reshape(-1)[free], of_dispersion))
        change = np.zeros(num_effects**2)
        change[free] = step[:-1]
        values, vectors = np.linalg.eigh(change.reshape(num_effects, num_effects))
        factor = factor @ (vectors * np.sqrt(np.clip(1 + values, _LEAST, _MOST))) @ vectors.T
        dispersion = max(dispersion * float(np.clip(1 + step[-1], _LEAST, _MOST)), 1e-6 * spread)
    least = least_squares(rest.information, rest.right)
    spare = sums.num_used - width
    if given is None and not len(sums.levels) and spare > 0:
        # Without the prior, the residuals may be far smaller.
        least[1] *= np.sqrt(max(float(total - least[0] @ cross), 0.0) / spare / dispersion)
    if spare < _SPARE_ROWS:
        least[1] = 1 / _SINGULAR
    sd, log_sigma_error, correlation = _errors(known, factor, free, has_levels=len(sums.levels) > 0)
    return Fit(
        rest.coefficients, rest.information + ridge, rest.normals @ before.T, dispersion, log_sigma_error, sd, correlation, least
    )  # fmt: skip


def _given(sums: Sums, ridge: np.ndarray, factor: np.ndarray, dispersion: float) -> _Given:
    """Return coefficients and effects given the Cholesky factor of the covariance of the effects, or a rotation of it."""
    gram, cross, total = sums.gram[:-1, :-1], sums.gram[:-1, -1], sums.gram[-1, -1]
    within, with_columns, with_outcome = sums.of_levels
    of_effects = factor.T @ within @ factor / dispersion
    of_columns, of_outcome = factor.T @ with_columns / dispersion, with_outcome @ factor / dispersion
    remaining = np.linalg.inv(np.eye(len(factor)) + of_effects)
    shrunk = remaining @ of_columns
    information = gram / dispersion - np.einsum("lqp,lqr->pr", of_columns, shrunk)
    right = cross / dispersion - np.einsum("lqp,lq->p", shrunk, of_outcome)
    coefficients = np.linalg.solve(information + ridge, right) if len(ridge) else right
    left_over = of_outcome - np.einsum("lqp,p->lq", of_columns, coefficients)
    normals = np.einsum("lqr,lr->lq", remaining, left_over)
    residual = (total - 2 * coefficients @ cross + coefficients @ gram @ coefficients) / dispersion
    # Expected squares of the effects are those of the mean and the trace of what remains unknown.
    residual += np.einsum("lqq->", np.eye(len(factor)) - remaining) - np.sum(normals * (left_over + normals))
    return _Given(coefficients, information, right, normals, remaining, float(residual))


def _information(sums: Sums, remaining: np.ndarray, free: np.ndarray, *, has_dispersion: bool) -> np.ndarray:
    """Return twice the expected information on the free entries of S, and on the log of the dispersion, which is last.

    Args:
        sums: sums of products over rows.
        remaining: (level, effect, effect), see `_Given`.
        free: positions of the free entries in S, flattened.
        has_dispersion: whether the dispersion is estimated.
    """
    num_levels, q = remaining.shape[:2]
    explained, known = np.eye(q) - remaining, np.zeros((len(free) + 1, len(free) + 1))
    if len(free) == q * q:
        # S to the sum of A S A over the levels.
        flat = explained.reshape(num_levels, q * q)
        known[:-1, :-1] = (flat.T @ flat).reshape(q, q, q, q).transpose(0, 3, 1, 2).reshape(q * q, q * q)
    else:
        known[:-1, :-1] = np.square(explained).sum(0)
    if has_dispersion:
        mixed = np.einsum("lqr,lrs->qs", explained, remaining)
        known[:-1, -1] = known[-1, :-1] = mixed.reshape(-1)[free]
        # Weights below 1 would make it less than what the effects take.
        least = known[-1, :-1] @ np.linalg.solve(known[:-1, :-1] + 0.5 * np.eye(len(free)), known[:-1, -1])
        known[-1, -1] = max(sums.num_used - np.einsum("lqq->", explained) - np.trace(mixed), least)
    return known


def _errors(
    known: np.ndarray, factor: np.ndarray, free: np.ndarray, *, has_levels: bool
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return standard deviations with the errors of their logs, the error of the log of sigma, and the factor of the correlations.

    Errors have a variance of 1 where nothing is known. See `Fit`.
    """
    q = len(factor)
    errors = np.linalg.inv(2 * known + np.eye(len(known)))
    sd = np.linalg.norm(factor, axis=1)
    directions = np.einsum("qr,qs->qrs", factor, factor).reshape(q, q * q)[:, free] / sd[:, None] ** 2
    of_logs = np.sqrt(np.minimum(np.einsum("qi,ij,qj->q", directions, errors[:-1, :-1], directions), 1))
    told = ((of_logs**-2 - 1) / 2).min(initial=np.inf)
    weight = told / (told + _FEW_LEVELS) if has_levels else 0.0
    correlations = np.eye(q) * (1 - weight) + weight * factor @ factor.T / np.outer(sd, sd)
    return np.stack([sd, of_logs]), float(np.sqrt(errors[-1, -1])), np.linalg.cholesky(correlations)
