"""Check outcomes and columns: reject those that a linear model would misread, and warn of what the data leave open.

With all residuals 0, N rows and effects of rank r, the marginal likelihood of sigma grows as sigma**-(N - r), which is not
integrable at 0 unless the prior of sigma falls faster. Without surplus rows, such as with one row for each level, the
posterior is proper.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.config.data_spec import Variable
from bayesmesh.config.prior_texts import parse_prior
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import HostRows, ReadBlocks
from bayesmesh.models.glm.design import Columns, latent_name
from bayesmesh.models.glm.families.base import Family
from bayesmesh.models.glm.formula import KEY, Formula
from bayesmesh.models.options import GlmOptions

_log = logging.getLogger("bayesmesh")

MOST_COUNT = 2**31 - 1
"""Largest count: devices hold 32-bit integers."""

_MOST_NAMED = 12
"""Largest number of columns that a sentence names."""

_EXACT = 1e-13
"""Sum of squared residuals, as a share of that of the outcome, up to which it is rounding error, of either sign."""

_RANK = 1e-6
"""Eigenvalue, as a share of the largest, up to which a direction is not counted: its residuals would be rounding alone."""

LEAST_SPREAD = 0.01
"""Variance of the outcome, as a share of its mean square, below which its products keep too few digits for a verdict."""


def check_terms(formula: Formula, columns: Sequence[Columns], family: Family) -> None:
    """Reject terms that a family does not take, that would share a name, or of which there are none.

    Args:
        formula: formula of the model.
        columns: its population-level columns, by term.
        family: family of the outcome.

    Raises:
        ConfigError: a categorical outcome has effects of groups, two groups would share all effects, or nothing is left to
            estimate.
    """
    if family.output_shape(2) and formula.groups:
        remedy = "use another family, or a column for each level"
        raise ConfigError(f"{KEY}: a categorical outcome takes no effects of groups", remedy)
    names = [latent_name(each.group) for each in formula.groups]
    if doubled := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ConfigError(f"{KEY}: the effects of two groups are called '{doubled[0]}'", "rename a column of groups")
    if not (columns or formula.has_intercept or formula.groups or family.parameters):
        problem = (
            f"{KEY}: nothing is left to estimate: no intercept, no term, and no parameter of the family {family.name}"
        )
        raise ConfigError(problem, f"write a term, or an intercept: {formula.outcome.text} ~ 1")


def check_order(name: str, about: Variable) -> None:
    """Reject an ordinal outcome whose levels were not given in an order; the order of only two decides no more than a sign.

    Raises:
        ConfigError: its levels are in alphabetical order, and not numbers.
    """
    levels = about.levels
    if about.is_ordered or len(levels) < 3 or list(levels) != sorted(levels):
        return
    try:
        [*map(float, levels)]
    except ValueError:
        first = ", ".join(levels[:3])
        raise ConfigError(
            f"{KEY}: the levels of '{name}' are in alphabetical order ({first}), which need not be their own",
            f"write all levels from the lowest to the highest:\n    data:\n      levels:\n        {name}: [...]",
        ) from None


def check_kind(name: str, family: str, variables: Mapping[str, Variable]) -> None:
    """Reject a column of numbers as an outcome of levels: in a table, 1, 2, 3 are numbers unless they are declared.

    Raises:
        ConfigError: the column holds numbers.
    """
    about = variables.get(name)
    if about is not None and about.kind == "number":
        problem = f"{KEY}: the outcome '{name}' is a column of numbers; family {family} takes the levels of a category"
        raise ConfigError(
            problem, f"declare the column as a category:\n    data:\n      types:\n        {name}: category"
        )


def check_codes(name: str, codes: np.ndarray, num_levels: int) -> None:
    """Reject codes of levels that do not count from 0, and warn of others that do not occur.

    Args:
        name: outcome, which has no names of levels.
        codes: the codes that occur, in ascending order.
        num_levels: number of levels.

    Raises:
        ConfigError: no row has the code 0, which would be a level all the same, and the reference of the others.
    """
    if codes[0] > 0:
        problem = f"{KEY}: the smallest value of '{name}' in the training rows is {codes[0]:g}; without names, levels count from 0"
        raise ConfigError(problem, f"number the levels 0, 1, 2, ..., for example by I({name} - {codes[0]:g})")
    if missing := num_levels - len(codes):
        before = codes[:-1][np.diff(codes) > 1] if len(codes) > 1 else codes[:0]
        first = before[0] if len(before) else codes[-1]
        _log.warning(
            "warning: %s: %d of the %d levels of '%s' have no training row, the first of them %d. Number the levels that occur"
            " 0, 1, 2, ..., unless other rows have the missing ones",
            KEY, missing, num_levels, name, first + 1,
        )  # fmt: skip


def check_counts(columns: Mapping[str, np.ndarray], start: int) -> None:
    """Reject counts that do not fit into the integers of a device.

    Args:
        columns: name -> counts for a block of rows.
        start: number of the first row, from 0.

    Raises:
        ConfigError: a count is too large.
    """
    for name, values in columns.items():
        if values.max(initial=0) > MOST_COUNT:
            row = int(np.argmax(values))
            problem = f"{KEY}: training row {start + row + 1}: '{name}' is {values[row]:g}, and counts are at most {MOST_COUNT:,}"
            raise ConfigError(problem, "use the family normal for the logarithm of so large counts")


def without_spread(what: str, value: float, remedy: str, key: str = KEY) -> ConfigError:
    """Return the error for a column or an outcome that is the same in all rows; `key` of the formula."""
    return ConfigError(f"{key}: {what} has the same value, {value:g}, in all rows", remedy)


def check_trials(name: str | None, mean: float) -> None:
    """Reject rows without any trials, given the mean number of trials, which is 1 without such a column."""
    if not mean:
        problem = f"key 'model.trials': '{name}' is 0 in every row, so the data hold no trials"
        raise ConfigError(problem, "name the column with the number of trials, or use other rows")


def whole_trials(name: str | None, trials: np.ndarray) -> np.ndarray:
    """Return the numbers of trials, (row,) int32; reject negative and fractional ones, even in rows to be predicted."""
    is_whole = (trials >= 0) & (trials == np.floor(trials))
    if not is_whole.all():
        problem = f"key 'model.trials': '{name}' is {trials[~is_whole][0]:g} in a row"
        raise ConfigError(problem, "write whole numbers of at least 0, or leave the row out")
    return trials.astype(np.int32)


def check_signs(named: Mapping[str, str | None], rows: HostRows, start: int) -> None:
    """Reject negative weights, and exposures that are not positive.

    Args:
        named: role -> column that has it, or None.
        rows: a block of rows.
        start: number of the first row, from 0.

    Raises:
        ConfigError: names the first such row.
    """
    for role, word, fits, needs in (
        ("weights", "weight", np.greater_equal, "that are 0 or greater"),
        ("exposure", "exposure", np.greater, "greater than 0"),
    ):
        if (name := named[role]) is None:
            continue
        values = np.asarray(rows[name], float)
        if not (possible := fits(values, 0)).all():
            row = int(np.argmin(possible))
            problem = f"key 'model.{role}': training row {start + row + 1}: the {word} is {values[row]:g}"
            raise ConfigError(problem, f"use numbers {needs}")


def warn_of_doubled_offset(options: GlmOptions) -> None:
    """Warn of an offset that is the log of the exposure, which then counts twice."""
    _log.warning(
        "warning: key 'model.offset': '%s' is the log of the exposure '%s' in all training rows, and both are added to the"
        " predictor. Leave out one of the two",
        options.offset, options.exposure,
    )  # fmt: skip


def check_missing(options: GlmOptions, missing: Collection[str]) -> None:
    """Reject rows that say nothing of the outcome.

    Args:
        options: options of the model.
        missing: what no row has: ``weights``, or a finite end, ``above`` or ``up_to``, of what is known of its outcome.

    Raises:
        ConfigError: names the key.
    """
    remedy = "use other rows, or remove the key"
    if "weights" in missing:
        raise ConfigError(f"key 'model.weights': '{options.weights}' is 0 in all training rows", remedy)
    for end, side in (("up_to", "right"), ("above", "left")):
        if end in missing:
            problem = f"all training rows are censored on the {side}, which leaves the outcome without bounds"
            raise ConfigError(f"key 'model.{'censored' if options.censored else 'rounded'}': {problem}", remedy)


def group_codes(name: str, codes: np.ndarray, start: int, key: str) -> np.ndarray:
    """Return the codes of groups of a block of rows, after rejecting numbers that are not codes; `start` as for `check_signs`, `key` of the formula."""
    if codes.ndim != 1 or not np.issubdtype(codes.dtype, np.integer) or (codes < 0).any():
        at = start + int(np.argmax(codes.reshape(len(codes), -1)[:, 0] < 0)) if codes.dtype.kind in "if" else start
        problem = f"{key}: the groups '{name}' are read as numbers (training row {at + 1}), and not as names of groups"
        remedy = f"declare the column as a category:\n    data:\n      types:\n        {name}: category"
        if (decimals := codes[codes != np.floor(codes)]).size:
            remedy = f"its numbers have decimals, such as {decimals[0]:g}: name a column of levels, or write {name} as a term of its own"
        raise ConfigError(problem, remedy)
    return codes


class Unused(NamedTuple):
    """A column that is constant because of the levels in it.

    Attributes:
        label: name of the column, such as ``town[c]``.
        is_everywhere: whether all rows have its levels, so that no row has the others; otherwise none has its levels.
        size: scale of the column, which has no standard deviation: 1 for levels alone, or the root mean square of the
            numbers that they multiply.
    """

    label: str
    is_everywhere: bool
    size: float


def find_unused(columns: Sequence[Columns], constant: Collection[int], read_blocks: ReadBlocks) -> dict[int, Unused]:
    """Return those of the constant columns whose levels no row has, or all rows have, by number.

    Args:
        columns: columns by term.
        constant: numbers of constant columns.
        read_blocks: returns an iterator over all training rows; called only if there are constant columns.
    """
    if not constant:
        return {}
    labels = [label for each in columns for label in each.labels]
    is_of_levels = [each.is_of_levels for each in columns for _ in each.labels]
    low, largest, squares, num_rows = np.ones(len(labels)), np.zeros(len(labels)), np.zeros(len(labels)), 0
    for rows in read_blocks():
        number = len(next(iter(rows.values())))
        levels = np.concatenate([each.evaluate(rows, number, without="numbers") for each in columns], axis=1)
        numbers = np.concatenate([each.evaluate(rows, number, without="levels") for each in columns], axis=1)
        low = np.minimum(low, levels.min(0, initial=1.0))
        # A level whose rows all have the number 0 determines its coefficient no more than one without rows.
        largest = np.maximum(largest, np.abs(levels * numbers).max(0, initial=0.0))
        squares, num_rows = squares + np.square(numbers).sum(0), num_rows + number
    sizes = np.sqrt(squares / max(num_rows, 1))
    found: dict[int, Unused] = {}
    for i in sorted(constant):
        is_everywhere = bool(low[i] == 1) and is_of_levels[i]
        if is_everywhere or (largest[i] == 0 and sizes[i] > 0):
            found[i] = Unused(labels[i], is_everywhere, float(sizes[i]))
    return found


def warn_of_unused(found: Collection[Unused], key: str) -> None:
    """Warn of levels without training rows; `key` of the formula."""
    for is_everywhere, what in ((False, "no training row has the levels"), (True, "all training rows have the level")):
        if names := named([each.label for each in found if each.is_everywhere == is_everywhere]):
            _log.warning("warning: %s: %s %s, whose coefficients follow their priors alone", key, what, names)


def warn_of_constant_slopes(names: Sequence[str], key: str) -> None:
    """Warn of slopes that the data do not tell from the intercepts beside them, as in a fold; `key` of the formula."""
    if names:
        message = "warning: %s: slopes of %s are those of a column with the same value in all rows, which the data do not tell from the intercepts of the levels"
        _log.warning(message, key, named(names))


def named(labels: Sequence[str]) -> str:
    """Return some names in a sentence, and whether there are more."""
    return ", ".join(labels[:_MOST_NAMED]) + (" and others" if len(labels) > _MOST_NAMED else "")


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
