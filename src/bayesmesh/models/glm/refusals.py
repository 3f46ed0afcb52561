"""Refusals of outcomes and columns that a linear model would misread."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from bayesmesh.errors import ConfigError
from bayesmesh.models.base import HostRows, Variable
from bayesmesh.models.glm.design import Columns, latent_name
from bayesmesh.models.glm.families import FAMILIES
from bayesmesh.models.glm.formula import KEY, Formula

_log = logging.getLogger("bayesmesh")

MOST_COUNT = 2**31 - 1
"""Largest count: devices hold 32-bit integers."""


def check_terms(formula: Formula, columns: Sequence[Columns], family: str) -> None:
    """Refuse terms that a family does not take, that would share a name, or of which there are none.

    Args:
        formula: formula of the model.
        columns: its population-level columns, by term.
        family: name of the family.

    Raises:
        ConfigError: a categorical outcome has effects of groups, two groups would share all effects, or nothing is left to
            estimate.
    """
    if family == "categorical" and formula.groups:
        remedy = "use another family, or a column for each level"
        raise ConfigError(f"{KEY}: a categorical outcome takes no effects of groups", remedy)
    names = [latent_name(each.group) for each in formula.groups]
    if doubled := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ConfigError(f"{KEY}: the effects of two groups are called '{doubled[0]}'", "rename a column of groups")
    if not (columns or formula.has_intercept or formula.groups or FAMILIES[family].parameters):
        problem = f"{KEY}: nothing is left to estimate: no intercept, no term, and no parameter of the family {family}"
        raise ConfigError(problem, f"write a term, or an intercept: {formula.outcome.text} ~ 1")


def check_order(name: str, about: Variable) -> None:
    """Refuse an ordinal outcome whose levels were not given in an order; the order of only two decides no more than a sign.

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
    """Refuse a column of numbers as an outcome of levels: in a table, 1, 2, 3 are numbers unless they are declared.

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
    """Refuse codes of levels that do not count from 0, and warn of others that do not occur.

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
    """Refuse counts that do not fit into the integers of a device.

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


def without_spread(what: str, value: float, remedy: str) -> ConfigError:
    """Return the error for a column or an outcome that is the same in all rows."""
    return ConfigError(f"{KEY}: {what} has the same value, {value:g}, in all rows", remedy)


def check_trials(name: str | None, mean: float) -> None:
    """Refuse rows without any trials, given the mean number of trials, which is 1 without such a column."""
    if not mean:
        problem = f"key 'model.trials': '{name}' is 0 in every row, so the data hold no trials"
        raise ConfigError(problem, "name the column with the number of trials, or use other rows")


def whole_trials(name: str | None, trials: np.ndarray) -> np.ndarray:
    """Return the numbers of trials, (row,) int32; refuse negative and fractional ones, even in rows to be predicted."""
    is_whole = (trials >= 0) & (trials == np.floor(trials))
    if not is_whole.all():
        problem = f"key 'model.trials': '{name}' is {trials[~is_whole][0]:g} in a row"
        raise ConfigError(problem, "write whole numbers of at least 0, or leave the row out")
    return trials.astype(np.int32)


def check_signs(named: Mapping[str, str | None], rows: HostRows, start: int) -> None:
    """Refuse negative weights, and exposures that are not positive.

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


def group_codes(name: str, codes: np.ndarray, start: int) -> np.ndarray:
    """Return the codes of groups of a block of rows, after refusing numbers that are not codes; `start` as for `check_signs`."""
    if codes.ndim != 1 or not np.issubdtype(codes.dtype, np.integer) or (codes < 0).any():
        at = start + int(np.argmax(codes.reshape(len(codes), -1)[:, 0] < 0)) if codes.dtype.kind in "if" else start
        problem = f"{KEY}: the groups '{name}' are read as numbers (training row {at + 1}), and not as names of groups"
        remedy = f"declare the column as a category:\n    data:\n      types:\n        {name}: category"
        raise ConfigError(problem, remedy)
    return codes
