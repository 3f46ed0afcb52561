"""Checkpoints with leaves large enough for files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file
from bayesmesh.store.chains import checkpoints
from bayesmesh.store.chains.damage import resumable
from bayesmesh.store.chains.segments import ChainStore

FACTOR = np.arange(400.0).reshape(20, 20)


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LARGE_BYTES", 1000)


def open_store(folder: Path) -> ChainStore:
    return ChainStore(folder, 4, {"identity": "a"})


def leaves(stop: int) -> dict[str, np.ndarray]:
    """A factor that never changes, positions that always do, and a number."""
    return {"done": np.asarray(stop), "factor": FACTOR, "position": np.full(300, stop / 7)}


def commit(store: ChainStore, make_values: Any, *stops: int) -> None:
    for stop in stops:
        store.commit("sample", stop - 4, make_values("sample", stop - 4, stop), leaves(stop), {})


def files_of(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("*.npy"))


def holding(folder: Path, value: np.ndarray) -> Path:
    return next(path for path in files_of(folder) if np.array_equal(np.load(path), value))


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        assert found[name].tobytes() == value.tobytes()


def test_a_leaf_that_does_not_change_is_written_once(tmp_path: Path, make_values: Any) -> None:
    store = open_store(tmp_path)
    commit(store, make_values, 4)
    written = holding(tmp_path, FACTOR).stat()
    commit(store, make_values, 8, 12, 16)
    now = holding(tmp_path, FACTOR).stat()
    assert (now.st_ino, now.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert len(files_of(tmp_path)) == 3, "the factor, and the positions of the two newest commits"
    last = store.commits()[-1]
    assert last.checkpoint == "checkpoints/sample-000000016.npz"
    for name, value in last.checkpoint_files.items():
        assert hash_file(tmp_path / name) == value
    assert not set(last.shards) & set(last.checkpoint_files)
    assert_same(open_store(tmp_path).load_checkpoint(last), leaves(16))


def test_a_file_that_no_commit_names_is_swept(tmp_path: Path, make_values: Any) -> None:
    """As a writer that is killed before its marker leaves one."""
    commit(open_store(tmp_path), make_values, 4)
    (tmp_path / "checkpoints" / f"{32 * '0'}.npy").write_bytes(b"x")
    store = open_store(tmp_path)
    assert store.begin_writing() is not None
    assert len(files_of(tmp_path)) == 2


@pytest.mark.parametrize("harm", ["change", "remove"])
def test_damage_to_a_shared_file_is_found_and_named(tmp_path: Path, make_values: Any, harm: str) -> None:
    commit(open_store(tmp_path), make_values, 4, 8)
    path = holding(tmp_path, FACTOR)
    if harm == "remove":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(StoreError, match=path.name):
        open_store(tmp_path).resume()
    assert len(list(open_store(tmp_path).damage())) == 1, "said once, though two commits name it"
    assert resumable(tmp_path) == []


def test_damage_to_a_file_of_the_newest_commit_alone_leaves_the_one_before(tmp_path: Path, make_values: Any) -> None:
    store = open_store(tmp_path)
    commit(store, make_values, 4, 8)
    holding(tmp_path, leaves(8)["position"]).unlink()
    assert resumable(tmp_path) == store.commits()[:1]
