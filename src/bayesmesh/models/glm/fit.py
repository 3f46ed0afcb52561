"""A quick fit of a linear model with group effects, on the host, from which the coordinates for sampling are derived.

Sums over rows are computed block by block: the products of the columns with each other, and those within every level of a
group. Coefficients and variances follow from them by Fisher's scoring (Longford 1987, doi:10.1093/biomet/74.4.817).
Families other than the normal are linearised first, and again around every fit (Breslow and Clayton 1993,
doi:10.1080/01621459.1993.10594284); with many rows, by their likelihood itself (`curvature`). The quality of the fit affects only the cost of draws, not their distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.models.base import HostRows, ReadBlocks
from bayesmesh.models.glm.curvature import Likelihood, sample
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.families.base import DEFAULT_SCALE, Family

_ITERATIONS, _LEAST, _MOST = 12, 0.01, 10.0
"""Steps of scoring, the cost of which grows with the number of levels, not with that of rows; and the least and the largest factor of
a variance in one of them."""

_PASSES = 4
"""Passes over the rows where one is not enough: a family is linearised, or effects of several groups are fitted in turn."""

_SINGULAR = 1e-12
"""Share of a column that others do not determine, below which it is rounding error."""

_FEW_LEVELS = 10
"""Number of levels from which correlations are taken by half."""

_SPARE_ROWS = 10
"""Number of rows beyond that of columns from which residuals tell how far least squares may be off."""

_DIGITS = 8
"""Digits of the numbers that are kept, so that these do not depend on the order in which a machine sums."""


class _Sums(NamedTuple):
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


class _State(NamedTuple):
    """A fit: coefficients, effects of each group, and parameters on the scale of their links, none without a `Likelihood`."""

    coefficients: np.ndarray
    effects: list[np.ndarray]
    parameters: np.ndarray

    def predictor(self, rows: HostRows, groups: Sequence[Group], center: float, *, has_intercept: bool) -> np.ndarray:
        """Return the predictor of each row, with the offset, (row,)."""
        of_columns = np.einsum("np,p->n", _columns(rows, has_intercept=has_intercept), self.coefficients)
        parts = [of_columns, *self.of_groups(rows, groups)]
        return np.asarray(center + rows.get("offset", 0.0) + np.sum(parts, axis=0))

    def of_groups(self, rows: HostRows, groups: Sequence[Group]) -> list[np.ndarray]:
        """Return the contribution of each group to the predictor of each row."""
        return [
            np.einsum("nq,nq->n", group.columns_of_effects(rows), effects[rows[f"group_{group.number}"]])
            for group, effects in zip(groups, self.effects, strict=True)
        ]


Working = Callable[[np.ndarray, np.ndarray, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
"""Outcomes, trials and predictors -> weights and responses, see `Family.working`."""


def fit(
    family: Family,
    working: Working,
    groups: Sequence[Group],
    read_fields: ReadBlocks,
    num_columns: int,
    unit: float,
    center: float,
    *,
    has_intercept: bool,
    num_rows: int = 0,
    likelihood: Likelihood | None = None,
    look: Callable[[int, np.ndarray, np.ndarray, float], None] = lambda *_: None,
) -> dict[str, np.ndarray]:
    """Return the arrays from which coordinates are built, by name.

    Args:
        family: family of the outcome.
        working: its working response, or that of `working_levels`.
        groups: group effects.
        read_fields: returns an iterator over prepared rows in blocks, with the codes of all groups.
        num_columns: number of standardised columns of the design.
        unit: unit of the predictor, in which priors are scaled.
        center: centre of the intercept's prior, which is subtracted from the outcome: products of an outcome far from 0
            would keep no digit of its variation. 0 without an intercept.
        has_intercept: whether there is one, before the columns.
        num_rows: number of rows.
        likelihood: what finds parameters, and corrects the working response for them; None for few rows.
        look: called before anything is fitted, with the number of each group and the arguments of `checks.surplus_rows`.

    Returns:
        ``location`` (c,) and ``root`` (c, c), upper triangular: intercept and standardised coefficients are about location
        + root @ standard normal. ``least_squares`` (2, c): the same without priors, see `least_squares`.
        ``first_NAME`` (2,): latents that are parameters or intercepts of their predictors, on the scale of the link, and
        their standard errors, where they are known. For each group g: ``gram_g`` (level, effect, effect), ``cross_g``
        (level, effect, c) and ``working_g`` (level, effect), the weighted products of effects with effects, columns, and the outcome less the columns' part at the
        location; ``sd_g`` (2, effect); and, of correlated effects, ``correlation_g`` (effect, effect), a Cholesky factor.
    """
    width = num_columns + has_intercept
    state: _State | None = None
    is_linear = family.is_in_unit and len(groups) < 2 and likelihood is None
    found: dict[str, np.ndarray] = {}
    ridge = np.eye(width) / (DEFAULT_SCALE * unit) ** 2
    some = None if likelihood is None else sample(read_fields(), num_rows)
    for _ in range(1 if is_linear else _PASSES):
        sums = _sums_of_groups(
            working, likelihood, groups, read_fields(), state, width, center, has_intercept=has_intercept
        )
        for i, own in enumerate(sums if state is None else ()):
            look(i, own.gram, own.levels, own.num_rows)
        dispersion = None if family.has_dispersion else 1.0
        if likelihood is not None and state is not None:
            dispersion = 1 / likelihood.precision(state.parameters)
        fits = [
            _score(each, ridge, unit, dispersion, is_correlated=bool(groups) and groups[i].is_correlated)
            for i, each in enumerate(sums)
        ]
        largest = max(range(len(sums)), key=lambda i: len(sums[i].levels))
        chosen, of_all = fits[largest], sums[largest].num_rows
        found = {"location": chosen.coefficients, "root": np.linalg.inv(np.linalg.cholesky(chosen.precision)).T}
        found["least_squares"] = chosen.least_squares
        if family.is_in_unit:
            found["first_sigma"] = np.array([0.5 * np.log(chosen.dispersion), chosen.log_sigma_error])
        for group, own, of_group in zip(groups, sums, fits, strict=False):
            q, divisor = group.num_effects, family.fixed_dispersion(of_group.dispersion)
            gram, cross, outcome = own.levels[:, :, :q], own.levels[:, :, q:-1], own.levels[:, :, -1]
            left_over = outcome - np.einsum("lqc,c->lq", cross, chosen.coefficients)
            for name, part in (("gram", gram), ("cross", cross), ("working", left_over)):
                found[f"{name}_{group.number}"] = part / divisor
            found[f"sd_{group.number}"] = of_group.sd
            if group.is_correlated:
                found[f"correlation_{group.number}"] = of_group.correlation
        effects = [each.effects for each in fits[: len(groups)]]
        parameters = np.zeros(0) if state is None else state.parameters
        if likelihood is None or some is None:
            state = _State(chosen.coefficients, effects, parameters)
            continue
        spread = float(np.sqrt(chosen.dispersion)) if family.is_in_unit else 1.0
        parameters = likelihood.begin(spread) if state is None else parameters
        state = _State(chosen.coefficients, effects, parameters)
        eta = state.predictor(some, groups, center, has_intercept=has_intercept)
        told = likelihood.find(some, eta, parameters, of_all, has_shift=has_intercept)
        found |= {f"first_{name}": told.values[:, i] for i, (name, _) in enumerate(likelihood.links.values())}
        shift = np.zeros(width)
        shift[: int(has_intercept)] = told.shift
        state = _State(chosen.coefficients + shift, effects, told.values[0])
    rounded = {name: _rounded(value) for name, value in found.items()}
    if has_intercept:
        rounded["location"][0] += center
    return rounded


def working_levels(family: Family, num_levels: int, read_fields: ReadBlocks) -> Working:
    """Return the working response of a family of ordered levels, linearised where all levels have their shares.

    Args:
        family: family of the outcome, which has scores.
        num_levels: number of levels of the outcome.
        read_fields: as for `fit`.
    """
    counts = np.zeros(num_levels)
    for rows in read_fields():
        counts += np.bincount(np.asarray(rows["outcome"], int), rows.get("weights"), minlength=num_levels)
    scores, variance = family.scores(_shares(counts))
    return lambda y, trials, eta: (np.full(len(y), 1 / variance), scores[y.astype(int)])


def _shares(counts: np.ndarray) -> np.ndarray:
    """Return shares of levels, none of which is 0."""
    shares = np.maximum(counts, 0.5)
    return shares / shares.sum()


def fit_levels(family: Family, num_levels: int, read_fields: ReadBlocks, num_columns: int) -> dict[str, np.ndarray]:
    """Return ``least_squares`` of the columns for levels without an order, (2, column, ...), from one step of scoring.

    The step begins where all coefficients are 0, without effects of groups.

    Args:
        family: family of the outcome, which has scores.
        num_levels: number of levels of the outcome.
        read_fields, num_columns: as for `fit`.
    """
    gram, sums, counts = np.zeros((num_columns, num_columns)), np.zeros((num_columns, num_levels)), np.zeros(num_levels)
    for rows in read_fields() if num_columns else ():
        design = np.asarray(rows["design"])
        weights = np.asarray(rows.get("weights", np.ones(len(design))), float)
        chosen = weights[:, None] * (np.asarray(rows["outcome"])[:, None] == np.arange(num_levels))
        gram += np.einsum("ni,nj->ij", design, weights[:, None] * design)
        sums += np.einsum("ni,nk->ik", design, chosen)
        counts += chosen.sum(0)
    scores, variances = family.scores(_shares(counts))
    found = least_squares(gram, np.einsum("ik,k...->i...", sums, scores))
    found[1] *= np.sqrt(variances)
    return {"least_squares": _rounded(found)}


def _rounded(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        exponent = np.where(x == 0, 0.0, np.floor(np.log10(np.abs(x))))
    unit = 10.0 ** (exponent - _DIGITS + 1)
    return np.asarray(np.round(x / unit) * unit)


def _columns(rows: HostRows, *, has_intercept: bool) -> np.ndarray:
    """Return the intercept's column, if there is one, and standardised columns, (row, column)."""
    ones = np.ones((len(rows["outcome"]), int(has_intercept)))
    return np.concatenate([ones, rows["design"]], axis=1) if "design" in rows else ones


def _sums_of_groups(
    working: Working,
    likelihood: Likelihood | None,
    groups: Sequence[Group],
    blocks: Iterator[HostRows],
    state: _State | None,
    width: int,
    center: float,
    *,
    has_intercept: bool,
) -> list[_Sums]:
    """Return the sums for each group, with the current effects of the others subtracted from the outcome; one without groups."""
    grams = [np.zeros((width + 1, width + 1)) for _ in range(max(1, len(groups)))]
    levels = [np.zeros((g.num_levels, g.num_effects, g.num_effects + width + 1)) for g in groups]
    levels = levels or [np.zeros((0, 0, width + 1))]
    num_rows = num_used = 0.0
    for rows in blocks:
        y = np.asarray(rows["outcome"], float)
        columns = _columns(rows, has_intercept=has_intercept)
        effects = [group.columns_of_effects(rows) for group in groups]
        offset = np.asarray(rows.get("offset", np.zeros(len(y))), float)
        trials = np.asarray(rows.get("trials", np.ones(len(y))), float)
        of_groups, eta = [np.zeros(len(y)) for _ in groups], None
        if state is not None:
            of_groups = state.of_groups(rows, groups)
            eta = state.predictor(rows, groups, center, has_intercept=has_intercept)
        weight, response = working(y, trials, eta)
        if likelihood is not None and eta is not None and state is not None:
            weight, response = likelihood.working(rows, eta, state.parameters, weight)
        own = np.asarray(rows.get("weights", np.ones(len(y))), float)
        num_rows, num_used = num_rows + float(own.sum()), num_used + float(own[weight > 0].sum())
        weight, response = weight * own, response - center - offset
        for i in range(len(grams)):
            others = sum((x for j, x in enumerate(of_groups) if j != i), start=np.zeros(len(y)))
            both = np.concatenate([columns, (response - others)[:, None]], axis=1)
            grams[i] += np.einsum("ni,nj->ij", both, weight[:, None] * both)
            if groups:
                all_three = np.concatenate([effects[i], both], axis=1)
                add_levels(levels[i], rows[f"group_{groups[i].number}"], weight[:, None] * effects[i], all_three)
    return [_Sums(num_rows, num_used, gram, of_levels) for gram, of_levels in zip(grams, levels, strict=True)]


def add_levels(total: np.ndarray, codes: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Add the products of (row, a) and (row, b) to those of their levels, (level, a, b)."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    products = left[order][:, :, None] * right[order][:, None, :]
    total[ordered[first]] += np.add.reduceat(products, first, axis=0)


class _Fit(NamedTuple):
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


def _score(sums: _Sums, ridge: np.ndarray, unit: float, given: float | None, *, is_correlated: bool) -> _Fit:
    """Return the fit with a given dispersion, or with one that is estimated.

    Each step moves the variances by the inverse of their expected information times the gradient of their density with a wide
    prior: the covariance L L^T of the effects to L (1 + S) L^T, where S is symmetric, and diagonal for uncorrelated effects.
    """
    width = len(ridge)
    gram, cross, total = sums.gram[:-1, :-1], sums.gram[:-1, -1], sums.gram[-1, -1]
    num_levels, num_effects = sums.levels.shape[:2]
    within, with_columns, with_outcome = (
        sums.levels[:, :, :num_effects], sums.levels[:, :, num_effects:-1], sums.levels[:, :, -1],
    )  # fmt: skip
    plain = np.linalg.solve(gram + ridge, cross) if width else cross
    spread = max(float(total - plain @ cross) / max(sums.num_used, 1.0), 1e-12 * unit**2)
    dispersion = spread if given is None else given
    size = np.einsum("lqq->q", within) / max(sums.gram[0, 0], sums.num_used, 1e-12)
    size[size == 0] = 1.0
    widest, identity = 4 * spread / size, np.eye(num_effects)
    factor = np.diag(np.sqrt(widest) / 4)
    free = np.arange(num_effects**2) if is_correlated else np.arange(num_effects) * (num_effects + 1)
    # Twice the expected information on the entries of S and on the log of the dispersion.
    known = np.zeros((len(free) + 1, len(free) + 1))
    coefficients, information, right = plain, gram / dispersion, cross / dispersion
    effects = np.zeros(with_outcome.shape)
    for _ in range(_ITERATIONS):
        # Of effects as L z, with z standard normal.
        of_effects = factor.T @ within @ factor / dispersion
        of_columns, of_outcome = factor.T @ with_columns / dispersion, with_outcome @ factor / dispersion
        remaining = np.linalg.inv(identity + of_effects)
        shrunk = remaining @ of_columns
        information = gram / dispersion - np.einsum("lqp,lqr->pr", of_columns, shrunk)
        right = cross / dispersion - np.einsum("lqp,lq->p", shrunk, of_outcome)
        coefficients = np.linalg.solve(information + ridge, right) if width else right
        left_over = of_outcome - np.einsum("lqp,p->lq", of_columns, coefficients)
        normals = np.einsum("lqr,lr->lq", remaining, left_over)
        effects = normals @ factor.T
        squares = np.einsum("lq,lr->qr", normals, normals) + remaining.sum(0)
        residual = (total - 2 * coefficients @ cross + coefficients @ gram @ coefficients) / dispersion
        residual -= np.sum(normals * left_over) + np.trace(squares) - num_levels * num_effects
        explained = identity - remaining
        if is_correlated:
            # S to the sum of A S A over the levels.
            flat = explained.reshape(num_levels, num_effects**2)
            products = (flat.T @ flat).reshape([num_effects] * 4).transpose(0, 3, 1, 2)
            known[:-1, :-1] = products.reshape([num_effects**2] * 2)
        else:
            known[:-1, :-1] = np.square(explained).sum(0)
        towards = squares - (num_levels - 1) * identity - factor.T @ (factor / widest[:, None])
        slope = np.append(towards.reshape(-1)[free], 0.0)
        if given is None:
            mixed = np.einsum("lqr,lrs->qs", explained, remaining)
            known[:-1, -1] = known[-1, :-1] = mixed.reshape(-1)[free]
            # Weights below 1 would make it less than what the effects take.
            least_known = known[-1, :-1] @ np.linalg.solve(known[:-1, :-1] + 0.5 * np.eye(len(free)), known[:-1, -1])
            of_rows = sums.num_used - np.einsum("lqq->", explained) - np.trace(mixed)
            known[-1, -1] = max(of_rows, least_known)
            slope[-1] = residual - sums.num_used
        # With a prior worth one level.
        step = np.linalg.solve(known + np.eye(len(known)), slope)
        change = np.zeros(num_effects**2)
        change[free] = step[:-1]
        values, vectors = np.linalg.eigh(change.reshape(num_effects, num_effects))
        factor = factor @ (vectors * np.sqrt(np.clip(1 + values, _LEAST, _MOST))) @ vectors.T
        dispersion = max(dispersion * float(np.clip(1 + step[-1], _LEAST, _MOST)), 1e-6 * spread)
    least = least_squares(information, right)
    spare = sums.num_used - width
    if given is None and not num_levels and spare > 0:
        # Without the prior, the residuals may be far smaller.
        least[1] *= np.sqrt(max(float(total - least[0] @ cross), 0.0) / spare / dispersion)
    if spare < _SPARE_ROWS:
        least[1] = 1 / _SINGULAR
    # Of the logs of standard deviations, with a variance of 1 where nothing is known.
    errors = np.linalg.inv(2 * known + np.eye(len(known)))
    sd = np.linalg.norm(factor, axis=1)
    directions = (
        np.einsum("qr,qs->qrs", factor, factor).reshape(num_effects, num_effects**2)[:, free] / sd[:, None] ** 2
    )
    of_logs = np.sqrt(np.minimum(np.einsum("qi,ij,qj->q", directions, errors[:-1, :-1], directions), 1))
    told = ((of_logs**-2 - 1) / 2).min(initial=np.inf)
    weight = told / (told + _FEW_LEVELS) if num_levels else 0.0
    correlations = identity * (1 - weight) + weight * factor @ factor.T / np.outer(sd, sd)
    return _Fit(
        coefficients, information + ridge, effects, dispersion, float(np.sqrt(errors[-1, -1])), np.stack([sd, of_logs]),
        np.linalg.cholesky(correlations), least,
    )  # fmt: skip
