"""Which rows, groups, films and users are held out or left out, and what shards hold then."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.config.registry import options_class
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import (
    deal,
    held_out_count,
    hold_out_groups,
    hold_out_interactions,
    hold_out_last,
    hold_out_rows,
    leave_out,
)
from bayesmesh.data.views import prepared
from bayesmesh.models.glm.model import Glm
from bayesmesh.store.layout import DataLayout

GROUP = np.array([4, 4, 4, 4, 7, 7, 9, 9, 9, 2, 2, 2])
TIME = np.array([1, 1, 2, 3, 3, 3, 4, 5, 6, 7, 7, 8])


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


def chosen(**about: object) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the masks of all folds of `GROUP` and `TIME`."""
    folds = LeftOut(**about).folds
    columns = {"group": GROUP, "time": TIME}
    return [leave_out(LeftOut(**about, fold=n + 1), 12, lambda key, field: columns[field]) for n in range(folds)]


def test_random_folds_cover_every_row_once_and_are_even_in_strata() -> None:
    for about in ({"folds": 5}, {"folds": 3, "strata": "group"}, {"folds": 4, "group": "group"}):
        masks = chosen(**about)
        assert (sum(out.astype(int) for out, _ in masks) == 1).all()
        assert all((stays == ~out).all() for out, stays in masks)
    sizes = [out.sum() for out, _ in chosen(folds=5)]
    assert (min(sizes), max(sizes)) == (2, 3)
    shares = np.array(
        [[out[value == GROUP].sum() for value in (4, 9, 2)] for out, _ in chosen(folds=3, strata="group")]
    )
    assert (np.ptp(shares, axis=0) <= 1).all()
    assert not (deal(100, 4, 0) == deal(100, 4, 1)).all()


def test_groups_stay_together() -> None:
    for out, _ in chosen(folds=2, group="group"):
        assert not set(GROUP[out]) & set(GROUP[~out])


def test_later_rows_are_neither_left_out_nor_kept() -> None:
    masks = chosen(folds=3, future="time", first_share=0.5)
    assert [sorted(set(TIME[out].tolist())) for out, _ in masks] == [[4, 5], [6], [7, 8]]
    for out, stays in masks:
        assert TIME[stays].max() < TIME[out].min()
        assert (stays == (TIME[out].min() > TIME)).all()
    scored = sum(out.astype(int) for out, _ in masks)
    assert scored.max() == 1
    assert (scored == (TIME >= 4)).all()


def test_folds_of_a_time_that_many_rows_share_begin_at_the_next_ones() -> None:
    """As the quantiles of the rows, all folds would begin at the value of most of them."""
    time = np.array([0, 1, *[2] * 30, 3, 4, 5])
    for folds, expected in ((3, [[2] * 30, [3], [4, 5]]), (5, [[1], [2] * 30, [3], [4], [5]])):
        masks = [
            leave_out(LeftOut(folds=folds, fold=n + 1, future="time"), len(time), lambda key, field: time)
            for n in range(folds)
        ]
        assert [time[out].tolist() for out, _ in masks] == expected
        assert all((stays == (time < time[out].min())).all() for out, stays in masks)


def test_shards_hold_the_rows_that_stay_beside_those_of_a_fold_and_their_numbers(layout: DataLayout) -> None:
    """The rows that the data themselves hold out are in neither, and numbers are those among the other rows."""
    rows = {"x": np.arange(40.0), "y": np.arange(40) % 2}
    whole = DataLayout(layout.results, "data", "whole")
    shard(Dataset(rows), DataSettings(held_out_fraction=0.25), whole)
    manifest = shard(Dataset(rows), DataSettings(held_out_fraction=0.25, left_out=LeftOut(folds=3, fold=2)), layout)
    training, fold = Shards(whole.shards), Shards(layout.shards)
    numbers = fold.left_out()
    assert training.left_out() is None
    assert (len(numbers), fold.num_rows) == (10, 20)
    known = training.read_rows(0, 30)["x"]
    held_out = fold.held_out()
    assert isinstance(held_out, dict)
    np.testing.assert_array_equal(held_out["x"], known[numbers])
    np.testing.assert_array_equal(fold.read_rows(0, 20)["x"], np.delete(known, numbers))
    assert manifest["split"]["left_out"] == "without fold 2 of 3"
    assert fold.fingerprint != training.fingerprint
    fold.verify()


def test_codes_that_only_a_fold_has_are_counted(layout: DataLayout) -> None:
    """The group with the largest code is left out: its rows still have an effect of their own."""
    rows = {"y": np.arange(12.0), "group": GROUP, "x": np.ones(12), "sign": np.where(np.arange(12) == 6, -1, 1)}
    left_out = next(
        LeftOut(folds=4, group="group", fold=n) for n in range(1, 5) if chosen(folds=4, group="group")[n - 1][0][6]
    )
    shard(Dataset(rows), DataSettings(left_out=left_out), layout)
    for local in ("none", "group"):
        options = options_class("model", "glm")(formula="y ~ 1 + (1 | group)", local_group=local)
        shards = prepared(layout.shards, functools.partial(Glm.prepare, options))
        spec = shards.spec()
        assert Shards(layout.shards).spec().fields["group"].num_codes == 10
        assert Shards(layout.shards).spec().fields["y"].num_codes == 0
        assert Shards(layout.shards).spec().fields["sign"].num_codes == 0
        assert spec.constants["levels_of_group_0"] == 10
        if local == "group":
            assert spec.entry_counts == (0, 0, 3, 0, 4, 0, 0, 2, 0, 0)
