"""Committing and resuming: cut anywhere, a run is the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group
from bayesmesh.store.chains import markers
from bayesmesh.store.chains import segments as stored_segments
from bayesmesh.store.chains.arrays import staged_name
from bayesmesh.store.chains.markers import Commit
from bayesmesh.store.chains.segments import ChainStore

Advance = Callable[..., ChainStore]
ReadTree = Callable[[Path], Mapping[str, bytes]]


@pytest.mark.parametrize("segment", [1, 3, 5, 50])
@pytest.mark.parametrize("stops", [(7,), (3, 7), (1, 2, 3, 4, 5, 6, 7), (7, 7, 2, 7)])
def test_a_run_cut_anywhere_is_the_same_run(
    tmp_path: Path,
    advance: Advance,
    read_tree: ReadTree,
    expected_draws: Callable[[int], np.ndarray],
    segment: int,
    stops: tuple[int, ...],
) -> None:
    advance(tmp_path / "whole", 7, segment=segment, warmup=4)
    for stop in stops:
        store = advance(tmp_path / "cut", stop, segment=segment, warmup=4)
    assert read_tree(tmp_path / "cut" / "draws.zarr") == read_tree(tmp_path / "whole" / "draws.zarr")
    assert read_tree(tmp_path / "cut" / "checkpoints") == read_tree(tmp_path / "whole" / "checkpoints")
    draws = open_group(tmp_path / "cut" / "draws.zarr")
    np.testing.assert_array_equal(draws["posterior/weights"][...], expected_draws(7))
    assert draws["warmup_sample_stats/diverging"].shape == (2, 4)
    last = store.resume()
    assert last is not None
    assert (last.phase, last.stop) == ("sample", 7)


def test_everything_is_on_disk_before_the_marker_has_its_name(
    tmp_path: Path, advance: Advance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power failure could leave a marker to files that are empty."""
    synced: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        fsync(descriptor)

    def note(source: Path, target: Path) -> None:
        replace(source, target)
        if Path(target).parent.name == "commits":
            synced.append(f"MARKER {Path(target).name}")

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", note)
    store = advance(tmp_path, 6, segment=4, warmup=4)
    extended = len(synced)
    store = advance(tmp_path, 8, segment=4, warmup=4)
    for commit in store.commits():
        marker = synced.index(f"MARKER {commit.name}")
        before = synced[extended if commit.stop == 8 else 0 : marker]
        for name in commit.files:
            staged = f"staged/{staged_name(name.removeprefix('draws.zarr/'))}" if name != commit.checkpoint else name
            assert str(Path(staged).parent) in before, f"name of {name}"
            assert staged in before or (
                name == commit.checkpoint and any("/.sample-" in s or "/.warmup-" in s for s in before)
            )
            if name != commit.checkpoint:
                assert str(Path(name).parent) in synced[marker:], "its place is on disk, after the marker"
        assert any(s.startswith("commits/.") for s in synced[max(0, marker - 2) : marker]), "the marker itself"
        assert synced[marker + 1] == "commits"
    about = [s for s in synced if s.endswith("zarr.json")]
    assert {"draws.zarr/zarr.json", "draws.zarr/posterior/zarr.json", "draws.zarr/posterior/weights/zarr.json"} <= set(
        about
    )


@pytest.mark.parametrize("segment", [1, 3, 4, 50])
def test_markers_are_contiguous_and_each_names_the_one_before(tmp_path: Path, advance: Advance, segment: int) -> None:
    for stop in (2, 9):
        store = advance(tmp_path, stop, segment=segment, warmup=5)
    commits = store.commits()
    for before, after in zip([None, *commits], commits, strict=False):
        assert after.follows(before)
        assert after.previous == (before.name if before else "")
        assert after.start % segment == 0
        assert after.stop - after.start <= segment
    for phase, total in (("warmup", 5), ("sample", 9)):
        covered = [i for c in commits if c.phase == phase for i in range(c.start, c.stop)]
        assert covered == list(range(total))
    # Markers are read again by another process as they were written.
    assert advance(tmp_path, 9).commits() == commits


def test_a_marker_names_every_file_of_its_segment(tmp_path: Path, advance: Advance) -> None:
    store = advance(tmp_path, 8, segment=4, warmup=4)
    _, first, second = store.commits()
    assert set(second.files) == {
        "checkpoints/sample-000000008.npz",
        "draws.zarr/posterior/weights/c/0/1/0/0",
        "draws.zarr/sample_stats/diverging/c/0/1",
    }
    assert second.checkpoint == "checkpoints/sample-000000008.npz"
    on_disk = {str(p.relative_to(tmp_path)) for p in (tmp_path / "draws.zarr").rglob("c/**/*") if p.is_file()}
    assert on_disk == {name for c in store.commits() for name in c.files if name.startswith("draws.zarr")}
    assert not set(first.files) & set(second.files)


def test_facts_of_a_segment_filled_in_several_runs_are_all_kept(tmp_path: Path, advance: Advance) -> None:
    for stop in (1, 2, 6):
        store = advance(tmp_path, stop, segment=4, warmup=0)
    first, second = store.commits()
    assert [f["first_new"] for f in (*first.earlier, first.facts)] == [0, 1, 2]
    assert sum(f["divergences"] for c in (first, second) for f in (*c.earlier, c.facts)) == 6
    assert advance(tmp_path, 6).commits() == [first, second]


def test_only_the_last_two_checkpoints_are_kept(tmp_path: Path, advance: Advance) -> None:
    for stop, kept in [(2, ["sample-000000002", "warmup-000000004"]), (3, ["sample-000000003", "warmup-000000004"]),
                       (13, ["sample-000000012", "sample-000000013"])]:  # fmt: skip
        advance(tmp_path, stop, segment=4, warmup=4)
        assert sorted(p.stem for p in (tmp_path / "checkpoints").iterdir()) == kept
    assert ChainStore(tmp_path, 4, {"identity": "0123456789abcdef"}).resume() is not None


def test_fewer_draws_than_are_there_change_nothing(tmp_path: Path, advance: Advance, read_tree: ReadTree) -> None:
    advance(tmp_path, 9)
    before = read_tree(tmp_path)
    advance(tmp_path, 3)
    assert read_tree(tmp_path) == before


def test_another_identity_is_refused(tmp_path: Path, advance: Advance, read_tree: ReadTree) -> None:
    advance(tmp_path, 3)
    before = read_tree(tmp_path)
    with pytest.raises(StoreError, match=r"holds identity 0123456789abcdef, not ffff.*\n  remedy: move it away"):
        ChainStore(tmp_path, 4, {"identity": "ffff"})
    assert read_tree(tmp_path) == before


def test_length_of_segments_and_environment_stay_those_of_the_beginning(tmp_path: Path) -> None:
    ChainStore(tmp_path, 4, {"identity": "a", "environment": {"kind": "cpu"}})
    store = ChainStore(tmp_path, 9, {"identity": "a", "environment": {"kind": "H200"}})
    assert (store.segment_draws, store.record["environment"]) == (4, {"kind": "cpu"})
    assert [store.next_count(start, 10) for start in (0, 3, 4, 8, 9)] == [4, 1, 4, 2, 1]


def test_reading_writes_nothing_and_sweeps_nothing(tmp_path: Path, advance: Advance, read_tree: ReadTree) -> None:
    """A posterior may be assembled while the chains are extended: what looks like an orphan is being written."""
    advance(tmp_path, 3)
    (tmp_path / "draws.zarr" / "posterior" / "weights" / "zarr.abc.partial").touch()
    before = read_tree(tmp_path)
    store = ChainStore(tmp_path, 4, {"identity": "0123456789abcdef"})
    last = store.resume()
    assert last is not None
    store.load_checkpoint(last)
    assert read_tree(tmp_path) == before


def test_orphans_of_a_killed_writer_are_swept_by_the_next(tmp_path: Path, advance: Advance) -> None:
    advance(tmp_path, 3)
    orphans = [
        tmp_path / "draws.zarr" / "posterior" / "weights" / "c" / "0" / "0" / "0" / "0.0af.partial",
        tmp_path / "draws.zarr" / "zarr.0af.partial",
        tmp_path / "commits" / ".sample-000000000-000000004.json.0af.json",
        tmp_path / "checkpoints" / ".sample-000000004.npz.0af.npz",
        tmp_path / "checkpoints" / "sample-000000004.npz",
    ]
    for orphan in orphans:
        orphan.touch()
    advance(tmp_path, 3)
    assert not [orphan for orphan in orphans if orphan.exists()]


@pytest.mark.parametrize(
    ("phase", "start", "count"),
    [("sample", 4, 1), ("sample", 2, 1), ("sample", 0, 1), ("warmup", 4, 1), ("sample", 3, 2), ("sample", 3, 0)],
)
def test_a_commit_that_does_not_continue_is_refused(
    tmp_path: Path, advance: Advance, make_values: Any, read_tree: ReadTree, phase: str, start: int, count: int
) -> None:
    store = advance(tmp_path, 3, segment=4, warmup=4)
    before = read_tree(tmp_path)
    with pytest.raises(ValueError, match=f"{phase} from {start}"):
        store.commit(phase, start, make_values(phase, start, start + count), {"x": np.zeros(1)}, {})
    assert read_tree(tmp_path) == before


def test_a_second_writer_is_noticed(tmp_path: Path, advance: Advance, make_values: Any) -> None:
    slow = advance(tmp_path, 4)
    advance(tmp_path, 8)
    with pytest.raises(StoreError, match="another process commits to it"):
        slow.commit("sample", 4, make_values("sample", 4, 8), {"x": np.zeros(1)}, {})
    assert ChainStore(tmp_path, 4, {"identity": "0123456789abcdef"}).resume() == advance(tmp_path, 8).commits()[-1]


def test_who_loses_the_lock_while_shards_are_written_leaves_no_marker(tmp_path: Path, advance: Advance) -> None:
    before = markers.marker_names(advance(tmp_path, 4).folder)
    holds_lock = iter([True])

    def fence() -> None:
        if not next(holds_lock, False):
            raise StoreError("another process has the lock")

    store = ChainStore(tmp_path, 4, {"identity": "0123456789abcdef"}, fence)
    store.begin_writing()
    values = {"posterior": {"weights": np.zeros((4, 2, 2, 3), np.float32)}}
    with pytest.raises(StoreError, match="has the lock"):
        store.commit("sample", 4, values, {"x": np.zeros(1)}, {})
    assert markers.marker_names(tmp_path) == before


def test_a_full_disk_leaves_a_store_that_goes_on(
    tmp_path: Path, advance: Advance, read_tree: ReadTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(tmp_path / "whole", 8)
    store = advance(tmp_path / "full", 6)

    def fail(path: Path, value: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(markers, "write_checked", fail)
        with pytest.raises(OSError, match="no space"):
            advance(tmp_path / "full", 8)
    assert store.commits()[-1].stop == 6
    last = ChainStore(tmp_path / "full", 4, {"identity": "0123456789abcdef"}).resume()
    assert last is not None
    assert last.stop == 6, "nothing that was committed is lost"
    advance(tmp_path / "full", 8)
    assert read_tree(tmp_path / "full" / "draws.zarr") == read_tree(tmp_path / "whole" / "draws.zarr")


@pytest.mark.parametrize("torn", [b"", b"\0" * 100])
def test_what_was_never_committed_is_not_read(
    tmp_path: Path, advance: Advance, read_tree: ReadTree, torn: bytes
) -> None:
    """After a power failure an array may be longer than what is committed, and what was staged torn."""
    advance(tmp_path / "whole", 6)
    advance(tmp_path / "cut", 4)
    open_group(tmp_path / "cut" / "draws.zarr", "a")["posterior/weights"].resize((2, 12, 2, 3))
    for shard in (0, 1, 2):
        path = tmp_path / "cut" / "staged" / staged_name(f"posterior/weights/c/0/{shard}/0/0")
        path.write_bytes(torn)
    advance(tmp_path / "cut", 5)
    advance(tmp_path / "cut", 6)
    assert read_tree(tmp_path / "cut" / "draws.zarr") == read_tree(tmp_path / "whole" / "draws.zarr")


def test_a_shape_that_a_power_failure_took_back_is_mended(
    tmp_path: Path, advance: Advance, read_tree: ReadTree
) -> None:
    for name in ("whole", "cut"):
        advance(tmp_path / name, 6)
    about = tmp_path / "cut" / "draws.zarr" / "posterior" / "weights" / "zarr.json"
    about.write_text(about.read_text().replace("6,", "4,", 1))
    assert open_group(tmp_path / "cut" / "draws.zarr")["posterior/weights"].shape == (2, 4, 2, 3)
    for name in ("whole", "cut"):
        advance(tmp_path / name, 7)
    assert read_tree(tmp_path / "cut" / "draws.zarr") == read_tree(tmp_path / "whole" / "draws.zarr")


@pytest.mark.parametrize("leaf", [np.array([{}]), np.array(["a", None], object)])
def test_a_checkpoint_holds_no_objects(tmp_path: Path, make_values: Any, leaf: np.ndarray) -> None:
    store = ChainStore(tmp_path, 4, {"identity": "a"})
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        store.commit("warmup", 0, make_values("warmup", 0, 4), {"x": leaf}, {})
    assert ChainStore(tmp_path, 4, {"identity": "a"}).resume() is None


class _Bomb:
    """Says so when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("unpickled",))


def test_a_checkpoint_is_never_unpickled(tmp_path: Path) -> None:
    store = ChainStore(tmp_path, 4, {"identity": "a"})
    (tmp_path / "checkpoints" / "x.npz").parent.mkdir(exist_ok=True)
    np.savez(tmp_path / "checkpoints" / "x.npz", position=np.array([_Bomb()], object))
    with pytest.raises(StoreError, match=r"x\.npz: cannot be read: Object arrays cannot be loaded"):
        store.load_checkpoint(Commit("sample", 0, 4, {}, "checkpoints/x.npz", {}))


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint32", "int64", "bool"])
def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path, make_values: Any, dtype: str) -> None:
    state = {"0": np.array(3, dtype), "kernel.position.weights": np.arange(6).reshape(2, 3).astype(dtype)}
    state["nan"] = np.array([np.nan, -0.0, np.inf])
    ChainStore(tmp_path, 4, {"identity": "a"}).commit("warmup", 0, make_values("warmup", 0, 4), state, {})
    store = ChainStore(tmp_path, 4, {"identity": "a"})
    found = store.load_checkpoint(store.commits()[-1])
    assert list(found) == list(state)
    for name, value in state.items():
        assert (found[name].dtype, found[name].shape, found[name].tobytes()) == (
            value.dtype,
            value.shape,
            value.tobytes(),
        )


def test_markers_are_read_from_disk_once(tmp_path: Path, advance: Advance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them all for every commit would make a run of n segments cost n squared."""
    advance(tmp_path, 12, segment=1)
    read = []
    original = stored_segments.read_checked
    for module in (stored_segments, markers):
        monkeypatch.setattr(
            module,
            "read_checked",
            lambda path, *rest, **more: (read.append(path.name), original(path, *rest, **more))[1],
        )
    advance(tmp_path, 20, segment=1)
    assert len(read) == len(set(read)) == 1 + 4 + 12, "store.json and the markers that were there"


def test_what_was_acknowledged_survives_sigkill(
    tmp_path: Path, advance: Advance, expected_draws: Callable[[int], np.ndarray]
) -> None:
    """A real process, killed without warning while it writes."""
    script = """
        import sys, numpy as np
        from pathlib import Path
        from bayesmesh.store.chains.segments import ChainStore
        store = ChainStore(Path(sys.argv[1]), 4, {"identity": "0123456789abcdef"})
        store.begin_writing()
        for start in range(0, 4000, 4):
            stop, index = start + 4, np.arange(start, start + 4, dtype=np.float32)[:, None]
            counted = index + 100 * np.arange(2, dtype=np.float32)
            weights = counted[:, :, None, None] + np.arange(6, dtype=np.float32).reshape(2, 3) / 8
            values = {"sample_stats": {"diverging": np.zeros((4, 2), bool)}, "posterior": {"weights": weights}}
            state = {"phase": np.array("sample"), "done": np.array(stop), "position": np.full(3, stop / 7)}
            store.commit("sample", start, values, state, {"divergences": 4})
            print(stop, flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(5)][-1]
        writer.kill()
    last = ChainStore(tmp_path, 4, {"identity": "0123456789abcdef"}).resume()
    assert last is not None
    assert last.stop >= acknowledged
    advance(tmp_path, last.stop + 5)
    draws = open_group(tmp_path / "draws.zarr")["posterior/weights"]
    np.testing.assert_array_equal(draws[...], expected_draws(last.stop + 5))
