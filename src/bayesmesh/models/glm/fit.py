"""A quick fit of a linear model with group effects, on the host, from which the coordinates for sampling are derived.

Sums over rows are computed block by block: the products of the columns with each other, and those within every level of a
group. Coefficients and variances follow from them (`scoring`).
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
from bayesmesh.models.glm.scoring import Sums, least_squares, score

_PASSES = 4
"""Passes over the rows where one is not enough: a family is linearised, or effects of several groups are fitted in turn."""

_DIGITS = 8
"""Digits of the numbers that are kept, so that these do not depend on the order in which a machine sums."""


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
            score(each, ridge, unit, dispersion, is_correlated=bool(groups) and groups[i].is_correlated)
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
) -> list[Sums]:
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
    return [Sums(num_rows, num_used, gram, of_levels) for gram, of_levels in zip(grams, levels, strict=True)]


def add_levels(total: np.ndarray, codes: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Add the products of (row, a) and (row, b) to those of their levels, (level, a, b)."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    products = left[order][:, :, None] * right[order][:, None, :]
    total[ordered[first]] += np.add.reduceat(products, first, axis=0)
