"""A commit that is not settled yet can be taken back, whatever it replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.store.arrays import open_group
from bayesmesh.store.chains.segments import ChainStore

Advance = Callable[..., ChainStore]


def hold(store: ChainStore, make_values: Any, start: int, stop: int) -> None:
    state = {"phase": np.array("sample"), "done": np.array(stop), "position": np.full(3, stop / 7)}
    facts = {"divergences": stop - start}
    store.commit("sample", start, make_values("sample", start, stop), state, facts, is_final=False)


def draws_of(folder: Path) -> np.ndarray:
    return np.asarray(open_group(folder / "draws.zarr")["posterior/weights"])


@pytest.mark.parametrize("begun", [4, 6, 8])
@pytest.mark.parametrize("is_same_process", [True, False])
def test_what_was_there_before_is_the_last_again(
    tmp_path: Path, advance: Advance, make_values: Any, expected_draws: Any, begun: int, is_same_process: bool
) -> None:
    store = advance(tmp_path, begun)
    before = store.commits()
    hold(store, make_values, begun, begun + store.next_count(begun, 12))
    if not is_same_process:
        store = ChainStore(tmp_path, 4, store.record)
        assert store.resume() != before[-1], "the held commit is there"
    store.withdraw()
    assert store.resume() == before[-1]
    assert store.begin_writing() == before[-1]
    np.testing.assert_array_equal(draws_of(tmp_path), expected_draws(begun))
    advance(tmp_path, 12)
    np.testing.assert_array_equal(draws_of(tmp_path), expected_draws(12))


def test_the_first_commit_can_be_withdrawn(tmp_path: Path, advance: Advance, make_values: Any) -> None:
    store = advance(tmp_path, 0, warmup=0)
    hold(store, make_values, 0, 4)
    store.withdraw()
    assert store.begin_writing() is None
    assert advance(tmp_path, 5, warmup=0).resume().stop == 5


def test_a_settled_commit_is_as_if_it_had_never_been_held(
    tmp_path: Path, advance: Advance, make_values: Any, read_tree: Any
) -> None:
    store = advance(tmp_path / "held", 6)
    hold(store, make_values, 6, 8)
    store.settle()
    advance(tmp_path / "usual", 6)
    advance(tmp_path / "usual", 8)
    assert read_tree(tmp_path / "held") == read_tree(tmp_path / "usual")


def test_a_process_without_arrays_commits_its_state(tmp_path: Path) -> None:
    store = ChainStore(tmp_path, 4, {"identity": "a"})
    assert store.begin_writing() is None
    for phase, start in (("warmup", 0), ("sample", 0), ("sample", 4)):
        store.commit(phase, start, {}, {"x": np.array([start])}, {}, count=4)
    last = ChainStore(tmp_path, 4, {"identity": "a"}).resume()
    assert last is not None
    assert (last.phase, last.stop) == ("sample", 8)
    np.testing.assert_array_equal(store.load_checkpoint(last)["x"], [4])
    with pytest.raises(ValueError, match="sample from 8"):
        store.commit("sample", 8, {}, {}, {})
