"""Choose the rows that are held out or left out, or some films of each user, by chance or by the values of a field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.data.base import Dataset
from bayesmesh.errors import DataError, suggest

Use = Literal["groups", "order", "strata"]
"""Use of a field's values."""


class Interactions(NamedTuple):
    """Held-out films of each user, as compressed sparse rows.

    Attributes:
        indptr: (num_users + 1,) int64; films of user u are ``indices[indptr[u]:indptr[u + 1]]``.
        indices: (num_held_out,) int32, ascending within a user.
    """

    indptr: np.ndarray
    indices: np.ndarray


class UnseenUsers(NamedTuple):
    """Users whom the chains have not seen.

    Attributes:
        rows: (users,) int64, their rows in the order of the source, ascending.
        given: (users, films) uint8, 1 for films from which to predict.
        hidden: films to predict.
    """

    rows: np.ndarray
    given: np.ndarray
    hidden: Interactions


def held_out_count(total: int, fraction: float) -> int:
    """Return how many of `total` are held out: at least one of two or more, and never all.

    >>> [held_out_count(n, 0.2) for n in (0, 1, 2, 10, 13)]
    [0, 0, 1, 2, 3]
    >>> held_out_count(10, 0.0), held_out_count(3, 0.99)
    (0, 2)
    """
    if fraction <= 0 or total < 2:
        return 0
    return min(max(1, round(fraction * total)), total - 1)


def hold_out_rows(num_rows: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split row indices at random.

    Returns:
        Training and held-out indices, int64, each ascending.
    """
    shuffled = np.random.default_rng([seed]).permutation(num_rows)
    count = held_out_count(num_rows, fraction)
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])


def hold_out_groups(values: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Choose groups of rows at random, so that a share of the groups is held out.

    Args:
        values: (rows,), equal for the rows of a group.
        fraction: share of the groups, in [0, 1).
        seed: seed of the choice.

    Returns:
        (rows,) bool, True where a row is held out.
    """
    groups, group_of_row = np.unique(values, return_inverse=True)
    is_hidden = np.zeros(len(groups), bool)
    is_hidden[hold_out_rows(len(groups), fraction, seed)[1]] = True
    return is_hidden[group_of_row]


def hold_out_last(values: np.ndarray, fraction: float) -> np.ndarray:
    """Choose the rows with the largest values: at least a share of all rows, and either all rows with a value or none.

    Args:
        values: (rows,), such as times.
        fraction: share of the rows, in [0, 1).

    Returns:
        (rows,) bool, True where a row is held out; nowhere if all rows have one value.

    >>> hold_out_last(np.array([3, 1, 2, 2, 0]), 0.4).tolist()
    [True, False, True, True, False]
    """
    ordered = np.sort(values)
    count = held_out_count(len(values), fraction)
    first = ordered[len(values) - count] if count else np.inf
    # The rows that stay must differ from those that do not.
    later = ordered[ordered > ordered[0]]
    if first == ordered[0] and len(later):
        first = later[0]
    return values >= first if len(later) else np.zeros(len(values), bool)


def hold_out_interactions(
    watched: np.ndarray, fraction: float, seed: int, users: Sequence[int] | None = None
) -> tuple[np.ndarray, Interactions]:
    """Hide a share of each user's films.

    The choice for a user depends on the seed, the user's index and the user's own films only, so adding or dropping other
    users does not change it.

    Args:
        watched: (users, films), non-zero where watched.
        fraction: share of each user's films, in [0, 1).
        seed: seed of the split.
        users: index of each user; 0, 1, ... if None.

    Returns:
        A copy of `watched` with the hidden cells at 0, and the hidden films.
    """
    training = watched.copy()
    indptr = np.zeros(len(watched) + 1, np.int64)
    hidden: list[np.ndarray] = []
    for user, row in enumerate(watched):
        films = np.flatnonzero(row)
        count = held_out_count(len(films), fraction)
        if count:
            index = user if users is None else int(users[user])
            chosen = np.sort(np.random.default_rng([seed, index]).permutation(films)[:count])
            training[user, chosen] = 0
            hidden.append(chosen)
        indptr[user + 1] = indptr[user] + count
    indices = np.concatenate(hidden) if hidden else np.empty(0)
    return training, Interactions(indptr, indices.astype(np.int32))


def hold_out_users(watched: np.ndarray, user_fraction: float, fraction: float, seed: int) -> UnseenUsers:
    """Choose users at random, and hide a share of the films of each.

    Args:
        watched: (users, films), non-zero where watched.
        user_fraction: share of the users, in (0, 1).
        fraction: share of each user's films, in (0, 1).
        seed: seed of both choices.
    """
    _, rows = hold_out_rows(len(watched), user_fraction, seed)
    return UnseenUsers(rows, *hold_out_interactions(watched[rows], fraction, seed, rows.tolist()))


def read_column(dataset: Dataset, key: str, name: str, use: Use) -> np.ndarray:
    """Return a field with one number for each row, (rows,).

    Args:
        dataset: the data.
        key: key that names the field; messages begin with it.
        name: name of the field.
        use: use of its values.

    Raises:
        DataError: the field does not exist, has missing values, or is unordered where an order is needed.
    """
    rows = dataset.rows
    if name not in rows or len(rows[name].shape) != 1:
        vectors = [each for each, values in rows.items() if len(values.shape) == 1]
        raise DataError(f"{key}: '{name}' is not a field with one number per row", suggest(name, vectors))
    if use != "strata" and name in dataset.absent and (absent := np.asarray(dataset.absent[name][:]) != 0).any():
        where = f"{int(absent.sum())} rows hold no '{name}', the first of them row {int(absent.argmax()) + 1}, counted from 1"
        what = "would count as one group" if use == "groups" else "would take a place among the others"
        raise DataError(
            f"{key}: {where}: they {what}",
            f"leave '{name}' out of `indicate_missing`, and such rows with `missing: drop`",
        )
    about = dataset.variables.get(name)
    if use == "order" and about is not None and about.kind == "category" and name not in dataset.ordered:
        first = ", ".join(about.levels[:3])
        raise DataError(
            f"{key}: '{name}' is a category, whose levels are in alphabetical order ({first}), which need not be that of time",
            f"use a column of numbers or times; or write all levels from the first to the last:\n    data:\n      levels:\n        {name}: [...]\n  (a source of your own names it in `Dataset.ordered`)",
        )
    return np.asarray(rows[name][:])


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
