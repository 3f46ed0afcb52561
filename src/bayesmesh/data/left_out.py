"""Leave out rows of the training data: a fold of all rows, of groups of rows, or of later rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.errors import DataError


def leave_out(
    left_out: LeftOut, num_rows: int, column: Callable[[str, str], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the rows that are left out and those that stay; in a series, the rows after a fold are neither.

    Args:
        left_out: what to leave out.
        num_rows: number of rows.
        column: returns a field with one number per row, (rows,), given the names of the key and of the field.

    Returns:
        Two masks, (rows,) bool.

    Raises:
        DataError: there are fewer rows, groups or times than folds.
    """
    if left_out.rows is not None:
        chosen = np.zeros(num_rows, bool)
        if wrong := [row for row in left_out.rows if not 0 <= row < num_rows]:
            raise DataError(
                f"{left_out.key('rows')}: row {wrong[0]} of {num_rows}", f"rows are numbered from 0 to {num_rows - 1}"
            )
        chosen[list(left_out.rows)] = True
        return chosen, ~chosen
    if left_out.future is not None:
        values = column("future", left_out.future)
        start, end = _interval(values, left_out)
        return (values >= start) & (values < end), values < start
    if left_out.group is not None:
        groups, group_of_row = np.unique(column("group", left_out.group), return_inverse=True)
        _check_enough(len(groups), left_out.key("group"), f"values of '{left_out.group}'", left_out.folds)
        fold_of_row = deal(len(groups), left_out.folds, left_out.seed)[group_of_row]
    else:
        _check_enough(num_rows, left_out.key("folds"), "rows", left_out.folds)
        strata = None if left_out.strata is None else column("strata", left_out.strata)
        fold_of_row = deal(num_rows, left_out.folds, left_out.seed, strata)
    chosen = fold_of_row == left_out.fold - 1
    return chosen, ~chosen


def deal(number: int, folds: int, seed: int, strata: np.ndarray | None = None) -> np.ndarray:
    """Return the fold of each item, (number,) from 0: items are shuffled, sorted by stratum, and dealt in turn.

    Sizes of folds differ by at most one item, and by at most one item of each stratum.

    Args:
        number: number of items.
        folds: number of folds.
        seed: seed of the order in which items are dealt.
        strata: (number,), strata to spread evenly over folds.

    >>> fold = deal(6, 3, 0, np.array([1, 1, 1, 0, 0, 0]))
    >>> sorted(fold[:3].tolist()), sorted(fold[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    """
    order = np.random.default_rng([seed]).permutation(number)
    if strata is not None:
        order = order[np.argsort(strata[order], kind="stable")]
    fold = np.empty(number, np.int64)
    fold[order] = np.arange(number) % folds
    return fold


def _interval(values: np.ndarray, left_out: LeftOut) -> tuple[float, float]:
    """Return the values at which a fold begins and ends: folds have about equal numbers of rows, and no value is in two.

    Where many rows share a value, later folds begin at the next values; the first begins earlier if too few values are left.
    """
    ordered, folds = np.sort(values), left_out.folds
    distinct = np.unique(ordered)
    if len(distinct) <= folds:
        raise DataError(
            f"{left_out.key('future')}: '{left_out.future}' has {len(distinct)} different values, and {folds} folds need {folds + 1}",
            f"use at most {len(distinct) - 1} folds" if len(distinct) > 2 else "choose another field",
        )
    shares = left_out.first_share + (1 - left_out.first_share) * np.arange(folds) / folds
    wanted = ordered[np.minimum((shares * len(values)).astype(np.int64), len(values) - 1)]
    # Indices of the folds' first values among the distinct ones, at least one apart; the first distinct value is in no fold.
    steps = np.arange(folds)
    place = np.maximum.accumulate(np.maximum(np.searchsorted(distinct, wanted), 1) - steps) + steps
    place = np.minimum(place, len(distinct) - folds + steps)
    starts = distinct[place]
    end = float(starts[left_out.fold]) if left_out.fold < folds else np.inf
    return float(starts[left_out.fold - 1]), end


def _check_enough(number: int, key: str, what: str, folds: int) -> None:
    if number < folds:
        raise DataError(f"{key}: {number} {what} for {folds} folds", f"use at most {number} folds")
