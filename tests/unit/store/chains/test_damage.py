"""Damage to what was committed is an error that names the file; never a silent restart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file
from bayesmesh.store.chains import damage, markers
from bayesmesh.store.chains.segments import ChainStore

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
    refuses(folder, f"{name}: is damaged: its sha256 differs from that in .*commits/.*json\n  remedy: move")


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


def test_a_marker_under_another_name(folder: Path, refuses: Callable[[Path, str], None]) -> None:
    """Its digest covers its name."""
    commits = folder / "commits"
    (commits / "sample-000000008-000000009.json").write_bytes((commits / f"{MARKERS[3]}.json").read_bytes())
    refuses(folder, r"sample-000000008-000000009\.json: is damaged")


def test_a_change_of_the_facts_in_a_marker(folder: Path, refuses: Callable[[Path, str], None]) -> None:
    path = folder / "commits" / f"{MARKERS[2]}.json"
    content = json.loads(path.read_text())
    content["facts"]["divergences"] += 1
    path.write_text(json.dumps(content))
    refuses(folder, f"{MARKERS[2]}.json: is damaged: .*its content is not what was written")


@pytest.mark.parametrize("lost", [[3], [0, 1, 2, 3]], ids=["the last", "all"])
def test_lost_markers_are_damage_and_not_a_fresh_start(
    folder: Path, refuses: Callable[[Path, str], None], lost: list[int]
) -> None:
    """A shard takes its place after its marker is on the disk."""
    for number in lost:
        (folder / "commits" / f"{MARKERS[number]}.json").unlink()
    refuses(folder, r"no marker in .*commits names it: a marker was lost\n  remedy: move")


@pytest.mark.parametrize("lost", [["sample"], ["sample", "warmup"]], ids=["of the draws", "all"])
def test_lost_markers_are_damage_though_their_draws_are_lost_too(
    tmp_path: Path, advance: Advance, refuses: Callable[[Path, str], None], lost: list[str]
) -> None:
    """The checkpoints are still there, and they had markers: a writer that ended leaves none without."""
    advance(tmp_path / "group-000", 3).end_writing()
    for phase in lost:
        for path in (tmp_path / "group-000" / "commits").glob(f"{phase}-*"):
            path.unlink()
    shutil.rmtree(tmp_path / "group-000" / "draws.zarr" / "posterior")
    shutil.rmtree(tmp_path / "group-000" / "draws.zarr" / "sample_stats")
    if "warmup" in lost:
        shutil.rmtree(tmp_path / "group-000" / "draws.zarr")
    refuses(tmp_path / "group-000", r"checkpoints/.*npz: no marker in .*commits names it: a marker was lost\n  remedy")


@pytest.mark.parametrize("draws", [3, 8])
def test_more_checkpoints_than_a_killed_writer_leaves(
    tmp_path: Path, advance: Advance, refuses: Callable[[Path, str], None], draws: int
) -> None:
    """It leaves those of the one segment that came next: not of warmup and draws, and not of two segments."""
    advance(tmp_path, draws)
    assert (tmp_path / "staged").is_dir()
    shutil.rmtree(tmp_path / "draws.zarr")
    for path in (tmp_path / "commits").iterdir():
        path.unlink()
    refuses(tmp_path, r"checkpoints/sample-.*npz: no marker in .*commits names it: a marker was lost")


@pytest.mark.parametrize("reader", ["damage", "resume"])
def test_what_a_writer_replaces_meanwhile_is_no_damage(
    tmp_path: Path, advance: Advance, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """Between reading the markers and hashing, shards grow, checkpoints go, and markers are replaced."""
    advance(tmp_path / "group-000", 5)
    store = ChainStore(tmp_path / "group-000", 4, {"identity": "0123456789abcdef"})
    assert len(store.commits()) == 3
    draws = iter(range(6, 99))

    def slowly(path: Path) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(damage, "hash_file", hash_file)
            advance(tmp_path / "group-000", min(next(draws), 10))
        return hash_file(path)

    monkeypatch.setattr(damage, "hash_file", slowly)
    if reader == "damage":
        assert list(store.damage()) == []
    else:
        store.resume()


def test_markers_that_are_replaced_while_they_are_read_are_read_again(
    tmp_path: Path, advance: Advance, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(tmp_path, 5)
    read, names = markers.read_checked, iter([6])

    def slowly(path: Path, *rest: Any, **more: Any) -> Any:
        for draws in names:
            advance(tmp_path, draws)
        return read(path, *rest, **more)

    monkeypatch.setattr(markers, "read_checked", slowly)
    assert markers.read_markers(tmp_path)[-1].stop == 6


@pytest.mark.parametrize("environment", [None, [], "cpu"])
def test_a_record_without_its_environment(folder: Path, environment: object) -> None:
    about = folder / "store.json"
    record = {k: v for k, v in json.loads(about.read_text()).items() if k != "sha256"}
    about.write_text(json.dumps(record if environment is None else {**record, "environment": environment}))
    with pytest.raises(StoreError, match=r"store\.json: is damaged: no environment in it\n  remedy: move"):
        ChainStore(folder, 4, {"identity": "0123456789abcdef", "environment": {"kind": "cpu"}})


METADATA = ["posterior/weights", "posterior", "sample_stats/diverging", "warmup_sample_stats", "."]


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.parametrize("damage", ["deleted", "truncated", "changed"])
def test_damaged_descriptions_of_arrays(
    folder: Path, refuses: Callable[[Path, str], None], name: str, damage: str
) -> None:
    about = folder / "draws.zarr" / name / "zarr.json"
    if damage == "deleted":
        about.unlink()
    elif damage == "truncated":
        about.write_bytes(about.read_bytes()[:-9])
    else:
        about.write_text(about.read_text().replace('"zarr_format": 3', '"zarr_format": 2').replace("little", "big"))
    refuses(folder, r"zarr\.json: is missing or damaged: it differs from .*commits.*\n  remedy: move")


@pytest.mark.parametrize("segment_draws", [0, -4, 2, "4", 4.0, None, True])
def test_another_length_of_segments_in_the_record(folder: Path, segment_draws: object, advance: Advance) -> None:
    """It decides which shard a draw is in."""
    (folder.parent / "identity.json").write_text(json.dumps({"segment_draws": 4}))
    about = folder / "store.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "segment_draws": segment_draws}))
    with pytest.raises(StoreError, match=r"store\.json: is damaged"):
        advance(folder, 12)


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


@pytest.mark.parametrize(
    ("damage_one", "expected"),
    [
        ("draws.zarr/posterior/weights/c/0/2/0/0", 3),
        (CHECKPOINT, 3),
        ("commits/sample-000000008-000000010.json", 3),
        (OLDER_CHECKPOINT, 4),
        ("draws.zarr/posterior/weights/c/0/0/0/0", 0),
        (WARMUP, 0),
        ("commits/sample-000000000-000000004.json", 0),
    ],
)
def test_what_is_left_after_the_last_whole_commit_continues_to_the_same_draws(
    folder: Path, undamaged: Path, advance: Advance, flip_bit: Callable[[Path], None], damage_one: str, expected: int
) -> None:
    flip_bit(folder / damage_one)
    points = damage.resumable(folder)
    assert (points[-1].stop if points else 0) == {4: 10, 3: 8, 0: 0}[expected]
    if not points:
        return
    for path in damage.files_after(folder, points[-1]):
        path.unlink()
    (folder / damage_one).unlink(missing_ok=True)
    advance(folder, 10)
    names = [path.relative_to(undamaged) for path in (undamaged / "draws.zarr").rglob("*") if path.is_file()]
    assert {name: hash_file(folder / name) for name in names} == {name: hash_file(undamaged / name) for name in names}
    assert len(ChainStore(folder, 4, {"identity": "0123456789abcdef"}).commits()) == 4


def test_all_damaged_markers_are_named_and_the_others_read(folder: Path) -> None:
    for name in MARKERS[:2]:
        (folder / "commits" / f"{name}.json").write_text("{")
    lines: list[str] = []
    assert [commit.stop for commit in markers.read_markers(folder, lines)] == [8, 10]
    assert [Path(line.partition(": ")[0]).stem for line in lines] == sorted(MARKERS[:2], reverse=True)
