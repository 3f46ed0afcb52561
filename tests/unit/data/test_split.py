"""Properties of the held-out split."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.data.split import held_out_count, hold_out_groups, hold_out_interactions, hold_out_last, hold_out_rows


@pytest.fixture
def watched() -> np.ndarray:
    generator = np.random.default_rng(1)
    matrix = (generator.random((50, 40)) < generator.random((50, 1))).astype(np.uint8)
    matrix[0], matrix[1] = 0, 0
    matrix[1, 7] = 1
    return matrix


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.9])
def test_every_user_keeps_and_gives(watched: np.ndarray, fraction: float) -> None:
    training, hidden = hold_out_interactions(watched, fraction, 3)
    given = np.diff(hidden.indptr)
    for user, total in enumerate(watched.sum(axis=1)):
        assert given[user] == held_out_count(int(total), fraction)
        assert given[user] < max(total, 1)
        assert total < 2 or given[user] >= 1
    assert (hidden.indptr.dtype, hidden.indices.dtype) == (np.int64, np.int32)
    assert training.dtype == watched.dtype


def test_training_and_held_out_make_the_whole(watched: np.ndarray) -> None:
    training, hidden = hold_out_interactions(watched, 0.3, 3)
    users = np.repeat(np.arange(len(watched)), np.diff(hidden.indptr))
    assert (training[users, hidden.indices] == 0).all()
    training[users, hidden.indices] += 1
    np.testing.assert_array_equal(training, watched)


def test_the_seed_decides(watched: np.ndarray) -> None:
    one, again, other = (hold_out_interactions(watched, 0.3, seed)[1].indices for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_users_hide_films_by_permutations_of_their_own() -> None:
    _, hidden = hold_out_interactions(np.ones((20, 40), np.uint8), 0.5, 3)
    assert len({tuple(films) for films in hidden.indices.reshape(20, 20).tolist()}) == 20


def test_a_user_does_not_depend_on_the_others(watched: np.ndarray) -> None:
    whole, _ = hold_out_interactions(watched, 0.3, 3)
    changed = watched.copy()
    changed[:20] = 1 - changed[:20]
    part, _ = hold_out_interactions(changed[:40], 0.3, 3)
    np.testing.assert_array_equal(whole[20:40], part[20:])


def test_rows_are_divided() -> None:
    kept, hidden = hold_out_rows(103, 0.1, 5)
    assert len(hidden) == 10
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, hidden])), np.arange(103))
    np.testing.assert_array_equal(hidden, hold_out_rows(103, 0.1, 5)[1])
    assert hidden.tolist() != hold_out_rows(103, 0.1, 6)[1].tolist()


def test_groups_are_held_out_whole() -> None:
    values = np.repeat(np.arange(10), [1, 2, 3, 4, 5, 1, 2, 3, 4, 5])
    hidden = hold_out_groups(values, 0.3, seed=1)
    assert len(set(values[hidden])) == 3
    assert not set(values[hidden]) & set(values[~hidden])
    assert (hold_out_groups(values, 0.3, seed=2) != hidden).any()


@pytest.mark.parametrize(
    ("values", "fraction", "hidden"),
    [
        ([0, 1, 2, 3], 0.25, [3]),
        ([3, 2, 1, 0], 0.5, [3, 2]),
        ([0, 1, 1, 1], 0.25, [1, 1, 1]),
        ([0, 0, 0, 1], 0.5, [1]),
        ([5, 5, 5, 5], 0.5, []),
        ([0, 1], 0.0, []),
    ],
)
def test_the_last_values_are_held_out_with_their_ties(values: list[int], fraction: float, hidden: list[int]) -> None:
    array = np.array(values)
    assert array[hold_out_last(array, fraction)].tolist() == hidden
