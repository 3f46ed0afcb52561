"""A sampler without mathematics: every draw is a function of its index, every checkpoint of how far it got."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.store.chains.segments import ChainStore

NUM_CHAINS = 2
RECORD = {"identity": "0123456789abcdef"}


def values_of(phase: str, start: int, stop: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the iterations [start, stop): (iteration, chain, ...)."""
    counted = np.arange(start, stop, dtype=np.float32)[:, None] + 100 * np.arange(NUM_CHAINS, dtype=np.float32)
    # Zero everywhere, as the divergences of a good run are: what equals the fill value must be stored all the same.
    stats = {"diverging": np.zeros(counted.shape, bool)}
    if phase == "warmup":
        return {"warmup_sample_stats": stats}
    matrix = counted[:, :, None, None] + np.arange(6, dtype=np.float32).reshape(2, 3) / 8
    return {"sample_stats": stats, "posterior": {"weights": matrix}}


@pytest.fixture(scope="session")
def make_values() -> Callable[[str, int, int], dict[str, dict[str, np.ndarray]]]:
    return values_of


@pytest.fixture(scope="session")
def advance() -> Callable[..., ChainStore]:
    """Return a function that brings a chain group to so many draws, as the loop of `sampling` does."""

    def advance(folder: Path, draws: int, *, segment: int = 4, warmup: int = 4) -> ChainStore:
        store = ChainStore(folder, segment, RECORD)
        last = store.begin_writing()
        phase, done = (last.phase, last.stop) if last else ("warmup", 0)
        if last:
            found = store.load_checkpoint(last)
            assert (str(found["phase"]), int(found["done"])) == (phase, done), "checkpoint of another commit"
        for current, wanted in (("warmup", warmup), ("sample", draws)):
            if current == "sample" and phase == "warmup":
                phase, done = "sample", 0
            while current == phase and done < wanted:
                stop = done + store.next_count(done, wanted)
                checkpoint = {"phase": np.array(phase), "done": np.array(stop), "position": np.full(3, stop / 7)}
                store.commit(phase, done, values_of(phase, done, stop), checkpoint, {"divergences": stop - done})
                done = stop
        return store

    return advance


@pytest.fixture(scope="session")
def read_tree() -> Callable[[Path], Mapping[str, bytes]]:
    """Return a function that reads a folder: path of every file below it -> its bytes."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="session")
def expected_draws() -> Callable[[int], np.ndarray]:
    """Return a function that gives ``posterior/weights`` of so many draws, (chain, draw, 2, 3)."""
    return lambda draws: np.swapaxes(values_of("sample", 0, draws)["posterior"]["weights"], 0, 1)


class Killed(BaseException):
    """The process is gone: nothing is cleaned up after it."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], contextlib.AbstractContextManager[list[str]]]:
    """Return a context in which the process dies before its n-th operation on files, counted from 0.

    Operations are fsync, replace and link (one of which ends every write of Zarr's) and unlink. From then on all of
    them fail, so that no `finally` tidies up: what is on the disk is what SIGKILL would have left.
    The context's value lists the operations that were made; it ends quietly, whether the process died or not.
    """

    @contextlib.contextmanager
    def kill_at(number: int) -> Iterator[list[str]]:
        made: list[str] = []

        def guarded(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if len(made) >= number:
                    raise Killed(f"{name} {args}")
                made.append(f"{name} {args}")
                return operation(*args, **kwargs)

            return call

        with monkeypatch.context() as patch:
            for name in ("fsync", "replace", "link", "unlink"):
                patch.setattr(os, name, guarded(name, getattr(os, name)))
            with contextlib.suppress(Killed):
                yield made

    return kill_at


@pytest.fixture(scope="session")
def flip_bit() -> Callable[[Path], None]:
    """Return a function that changes one bit in the middle of a file, in place."""

    def flip_bit(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 1
        path.write_bytes(content)

    return flip_bit
