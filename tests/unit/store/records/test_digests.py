"""Large inputs that were only touched are read once, and a change of content is seen whatever the times say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.files import hash_file
from bayesmesh.store.records import digests, seals
from bayesmesh.store.records.seals import Seal, changed_files, seal_file, stamp_files, write_seal


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_bytes(b"x\n" + b"1\n" * seals.ALWAYS_HASHED)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files that are read from now on, those of a moment ago among those that are old enough to remember."""
    read: list[Path] = []
    monkeypatch.setattr(digests, "hash_file", lambda path: read.append(path) or hash_file(path))
    monkeypatch.setattr(digests, "SETTLED_NS", -1)
    return read


@pytest.fixture
def lines(tmp_path: Path, table: Path) -> Callable[[], list[str]]:
    """Return a function that plans: what has changed since the seal was written."""
    results = tmp_path / "results"
    files = stamp_files({str(table): table}, results)
    about = {"job": "fetch", "specification": "", "code": "", "inputs": {}, "files": files}
    seal: Seal = write_seal(seal_file(results, "data/table", "fetch"), results, [], about)
    return lambda: list(changed_files(results, seal))


def test_a_touched_file_is_read_once(table: Path, reads: list[Path], lines: Callable[[], list[str]]) -> None:
    reads.clear()
    assert (lines(), reads) == ([], [])
    os.utime(table, (1e9, 1e9))
    assert [lines(), lines(), lines()] == [[], [], []]
    assert reads == [table]


@pytest.mark.parametrize("is_touched", [True, False])
def test_a_changed_cell_is_seen_whatever_the_time_says(
    table: Path, reads: list[Path], lines: Callable[[], list[str]], is_touched: bool
) -> None:
    time = table.stat().st_mtime_ns
    if is_touched:
        time = 10**18
        os.utime(table, ns=(time, time))
        assert lines() == []
    reads.clear()
    with table.open("r+b") as file:
        file.seek(2)
        file.write(b"7")
    os.utime(table, ns=(time, time))
    expected = [f"was made from another {table} than the present one"]
    assert [lines(), lines()] == [expected, expected]
    assert reads == [table]


def test_a_file_that_has_just_been_written_is_not_remembered(
    table: Path, reads: list[Path], lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "SETTLED_NS", 3 * 10**9)
    os.utime(table, (1e9, 1e9))
    reads.clear()
    assert [lines(), lines()] == [[], []]
    assert reads == [table, table]
