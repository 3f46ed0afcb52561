"""Hold out rows, or some films of each user, from the chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


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
