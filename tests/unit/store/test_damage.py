"""Damage to what was committed is an error that names the file; never a silent restart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.store.segments import ChainStore

Advance = Callable[..., ChainStore]

CHECKPOINT = "checkpoints/sample-000000010.npz"
OLDER_CHECKPOINT = "checkpoints/sample-000000008.npz"
SHARDS = [f"draws.zarr/posterior/weights/c/0/{shard}/0/0" for shard in range(3)]
STATS = "draws.zarr/sample_stats/diverging/c/0/1"
WARMUP = "draws.zarr/warmup_sample_stats/diverging/c/0/0"
MARKERS = ["warmup-000000000-000000004", *(f"sample-{a:09d}-{b:09d}" for a, b in ((0, 4), (4, 8), (8, 10)))]


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory, advance: Advance) -> Path:
    """A group of 10 draws in segments of 4, the last of them not full."""
    folder = tmp_path_factory.mktemp("undamaged") / "group-000"
    advance(folder, 10)
    return folder


@pytest.fixture
def folder(tmp_path: Path, undamaged: Path) -> Path:
    return shutil.copytree(undamaged, tmp_path / "group-000")


@pytest.fixture
def refuses(advance: Advance, read_tree: Callable[[Path], Mapping[str, bytes]]) -> Callable[[Path, str], None]:
    """Return a function that checks that neither resuming nor extending a folder goes through, or changes it."""

    def refuses(folder: Path, message: str) -> None:
        before = read_tree(folder)
        for draws in (10, 12):
            with pytest.raises(StoreError, match=message) as caught:
                advance(folder, draws)
            assert caught.value.remedy
        assert read_tree(folder) == before

    return refuses


@pytest.mark.parametrize("name", [*SHARDS, STATS, WARMUP, CHECKPOINT, OLDER_CHECKPOINT])
def test_flipped_bit(
    folder: Path, refuses: Callable[[Path, str], None], flip_bit: Callable[[Path], None], name: str
) -> None:
    flip_bit(folder / name)
    refuses(folder, f"{name}: is damaged: its sha256 is not the one in .*commits/.*json\n  remedy: move")


@pytest.mark.parametrize("name", [*SHARDS, STATS, WARMUP, CHECKPOINT])
def test_deleted_file(folder: Path, refuses: Callable[[Path, str], None], name: str) -> None:
    (folder / name).unlink()
    refuses(folder, f"{name}: is missing, though .*commits/.*json names it\n  remedy: move")


@pytest.mark.parametrize("name", MARKERS)
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_truncated_marker(folder: Path, refuses: Callable[[Path, str], None], name: str, share: float) -> None:
    path = folder / "commits" / f"{name}.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * (len(whole) - 2))])
    refuses(folder, f"{name}.json: is damaged")


@pytest.mark.parametrize("content", ["null", "[]", "{}", '{"files": [1], "checkpoint": "x", "facts": {}}'])
def test_marker_without_what_belongs_in_it(folder: Path, refuses: Callable[[Path, str], None], content: str) -> None:
    (folder / "commits" / f"{MARKERS[2]}.json").write_text(content)
    refuses(folder, f"{MARKERS[2]}.json: is damaged.*\n  remedy: move")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_hole_between_markers(folder: Path, refuses: Callable[[Path, str], None], missing: int) -> None:
    """Also where the first draws or the whole warmup are gone, and the rest is contiguous."""
    (folder / "commits" / f"{MARKERS[missing]}.json").unlink()
    refuses(folder, f"{MARKERS[missing + 1]}.json: the segment before it is missing\n  remedy: move")


def test_last_part_of_the_warmup_missing(
    tmp_path: Path, advance: Advance, refuses: Callable[[Path, str], None]
) -> None:
    advance(tmp_path, 4, warmup=8)
    (tmp_path / "commits" / "warmup-000000004-000000008.json").unlink()
    refuses(tmp_path, "sample-000000000-000000004.json: the segment before it is missing")


def test_two_markers_over_the_same_draws(folder: Path, refuses: Callable[[Path, str], None]) -> None:
    """As a restored backup would leave it."""
    commits = folder / "commits"
    (commits / "sample-000000008-000000009.json").write_bytes((commits / f"{MARKERS[3]}.json").read_bytes())
    refuses(folder, f"{MARKERS[3]}.json: the segment before it is missing")


def test_without_the_last_marker_its_segment_is_repeated(folder: Path, advance: Advance) -> None:
    """It is as if it had never been committed; the second checkpoint is kept for this."""
    (folder / "commits" / f"{MARKERS[3]}.json").unlink()
    assert [c.stop for c in advance(folder, 10).commits()] == [4, 4, 8, 10]


def test_markers_that_record_no_predecessor_are_read(folder: Path, advance: Advance) -> None:
    for path in (folder / "commits").iterdir():
        content = json.loads(path.read_text())
        path.write_text(json.dumps({k: content[k] for k in ("files", "checkpoint", "facts")}))
    assert [c.stop for c in advance(folder, 12).commits()] == [4, 4, 8, 12]


@pytest.mark.parametrize("missing", [1, 2])
def test_hole_between_markers_that_record_no_predecessor(
    folder: Path, refuses: Callable[[Path, str], None], missing: int
) -> None:
    for path in (folder / "commits").iterdir():
        content = json.loads(path.read_text())
        path.write_text(json.dumps({k: content[k] for k in ("files", "checkpoint", "facts")}))
    (folder / "commits" / f"{MARKERS[missing]}.json").unlink()
    refuses(folder, f"{MARKERS[missing + 1]}.json: the segment before it is missing")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"identity": "0123456789abcdef"}'])
def test_damaged_record_of_the_store(folder: Path, refuses: Callable[[Path, str], None], content: str) -> None:
    (folder / "store.json").write_text(content)
    refuses(folder, r"store\.json: is damaged")


def test_lost_record_of_the_store(folder: Path, refuses: Callable[[Path, str], None]) -> None:
    """Without it the length of its segments is unknown: another one would overwrite what is committed."""
    (folder / "store.json").unlink()
    refuses(folder, r"store\.json: is missing, though there are commits\n  remedy: move")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"x" * 1000])
def test_checkpoint_that_is_no_archive(folder: Path, content: bytes) -> None:
    """Also where nobody verified it first."""
    store = ChainStore(folder, 4, {"identity": "0123456789abcdef"})
    (folder / CHECKPOINT).write_bytes(content)
    with pytest.raises(StoreError, match=f"{CHECKPOINT}: cannot be read.*\n  remedy: move"):
        store.load_checkpoint(store.commits()[-1])


def test_every_flipped_bit_of_a_checkpoint_is_an_error_or_harmless(folder: Path) -> None:
    """The archive's own checksums, for readers that do not verify: wrong numbers never come back."""
    store = ChainStore(folder, 4, {"identity": "0123456789abcdef"})
    last = store.commits()[-1]
    expected = {k: v.tobytes() for k, v in store.load_checkpoint(last).items()}
    path = folder / CHECKPOINT
    whole = path.read_bytes()
    for position in range(0, len(whole), 3):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        try:
            found = store.load_checkpoint(last)
        except StoreError:
            continue
        assert all(found[k].tobytes() == v for k, v in expected.items() if k in found), position
