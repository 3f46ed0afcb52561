"""What processes agree on, played by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.errors import PeerError, StoreError
from bayesmesh.sampling.density import processes as sampling_processes
from bayesmesh.sampling.density.peers import Peers, resume_together
from bayesmesh.sampling.density.ranks import ProcessRank
from bayesmesh.store.chains.markers import Commit
from bayesmesh.store.chains.segments import ChainStore

SEGMENT = 4


class Thread(Peers):
    """One of several threads that stand for processes."""

    def __init__(self, index: int, table: list[Any], barrier: threading.Barrier) -> None:
        super().__init__()
        self.index, self.num_processes = index, len(table)
        self._table, self._barrier = table, barrier

    def exchange(self, value: Any) -> list[Any]:
        self._table[self.index] = value
        self._barrier.wait(10)
        said = list(self._table)
        self._barrier.wait(10)
        return said


def play(work: Callable[[Peers], Any], count: int = 2) -> list[Any]:
    """Let every process do the work; returns what each returned or raised."""
    table, barrier = [None] * count, threading.Barrier(count)

    def run(index: int) -> Any:
        try:
            return work(Thread(index, table, barrier))
        except (StoreError, PeerError, ValueError) as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def commit(store: ChainStore, stop: int, **options: Any) -> Commit:
    start = store.commits()[-1].stop if store.commits() else 0
    values = {"posterior": {"x": np.arange(start, stop, dtype=float)[:, None]}}
    return store.commit("sample", start, values, {"at": np.array(stop)}, {}, **options)


def open_stores(root: Path) -> list[ChainStore]:
    return [ChainStore(root / str(i), SEGMENT, {"identity": "a"}) for i in range(2)]


@pytest.fixture
def stores(tmp_path: Path) -> list[ChainStore]:
    """Two stores with four draws each."""
    stores = open_stores(tmp_path)
    for store in stores:
        store.begin_writing()
        commit(store, 4)
    return stores


def resumed(root: Path) -> list[Any]:
    stores = open_stores(root)
    return play(lambda peers: resume_together(stores[peers.index], peers))


def test_the_one_ahead_takes_its_last_commit_back(stores: list[ChainStore], tmp_path: Path) -> None:
    commit(stores[1], 6, is_final=False)
    assert [c.stop for c in resumed(tmp_path)] == [4, 4]
    assert [s.resume().stop for s in open_stores(tmp_path)] == [4, 4]


def test_so_it_does_when_that_filled_up_a_segment(stores: list[ChainStore], tmp_path: Path) -> None:
    for store in stores:
        commit(store, 6)
    commit(stores[0], 8, is_final=False)
    assert [c.stop for c in resumed(tmp_path)] == [6, 6]


def test_what_both_have_is_kept_though_it_was_not_settled(stores: list[ChainStore], tmp_path: Path) -> None:
    for store in stores:
        commit(store, 8, is_final=False)
    assert [c.stop for c in resumed(tmp_path)] == [8, 8]


def test_folders_that_do_not_belong_together_are_left_as_they_are(stores: list[ChainStore], tmp_path: Path) -> None:
    commit(stores[0], 8)
    commit(stores[0], 12)
    for error in resumed(tmp_path):
        assert isinstance(error, StoreError)
        assert "more than one commit apart" in str(error)
    assert [s.resume().stop for s in open_stores(tmp_path)] == [12, 4]


def test_damage_of_one_is_told_to_the_other(stores: list[ChainStore], tmp_path: Path) -> None:
    (tmp_path / "1" / stores[1].commits()[-1].checkpoint).unlink()
    told, found = resumed(tmp_path)
    assert isinstance(found, StoreError)
    assert isinstance(told, PeerError)
    assert "process 1 of 2 failed" in str(told)
    assert "is missing" in str(told)


def test_a_block_fails_everywhere_or_nowhere() -> None:
    def work(peers: Peers) -> str:
        with peers.together():
            if peers.index == 1:
                raise ValueError("mine")
        return "went on"

    told, own = play(work)
    assert isinstance(told, PeerError)
    assert "process 1 of 2 failed: mine" in str(told)
    assert isinstance(own, ValueError)


class Alone(Peers):
    """The only process that is left."""

    def exchange(self, value: Any) -> list[Any]:
        return [value]


def test_a_connection_that_broke_is_a_process_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX raises it as an error of the runtime, or as ValueError; a mistake in a value is none."""
    monkeypatch.setattr(sampling_processes, "_join", lambda rank: None)
    monkeypatch.setattr(sampling_processes, "DistributedPeers", Alone)
    rank = ProcessRank(index=0, num_processes=2, address="localhost:1")

    def fail(error: Exception) -> None:
        with sampling_processes.joined(rank):
            raise error

    for error in (
        ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"),
        jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: nobody came"),
        jax.errors.JaxRuntimeError("without a status"),
    ):
        with pytest.raises(PeerError, match="a device or another process was lost") as caught:
            fail(error)
        assert caught.value.is_abrupt, "it waits for nobody"
    for wrong in ("shapes do not fit", "NUTS: no step size", "INVALID_ARGUMENT: shapes do not fit"):
        with pytest.raises(ValueError, match=wrong):
            fail(ValueError(wrong))
