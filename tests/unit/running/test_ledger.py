"""The ledger keeps the rows of completed work and no others."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.running.ledger import Ledger

COLUMNS = {"job", "phase", "detail", "seconds", "gradients", "bytes", "peak_memory_bytes", "device", "at", "slurm_job"}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "sample-group-000.jsonl"


def test_a_row_per_phase_with_seconds_gradients_and_bytes(path: Path) -> None:
    ledger = Ledger(path, "sample-group-000")
    ledger.device = "NVIDIA H200"
    ledger.add("sample", 1.25, detail="500 iterations", gradients=40_000)
    ledger.add("write", 0.5, num_bytes=2**40)
    ledger.save()
    first, second = read(path)
    assert set(first) == set(second) == COLUMNS
    assert (first["phase"], first["detail"], first["seconds"], first["gradients"]) == (
        "sample",
        "500 iterations",
        1.25,
        40_000,
    )
    assert (second["bytes"], second["gradients"], second["device"], second["job"]) == (
        2**40,
        0,
        "NVIDIA H200",
        "sample-group-000",
    )
    assert 2**20 < first["peak_memory_bytes"] < 2**42


def test_a_phase_is_timed(path: Path) -> None:
    ledger = Ledger(path, "compile")
    with ledger.phase("measure", "one gradient"):
        time.sleep(0.02)
    (row,) = ledger.rows
    assert (row["phase"], row["detail"]) == ("measure", "one gradient")
    assert 0.02 <= row["seconds"] < 10


def test_a_phase_that_fails_leaves_no_row(path: Path) -> None:
    ledger = Ledger(path, "compile")
    with ledger.phase("trace"):
        pass

    def fail() -> None:
        with ledger.phase("lower"):
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert [row["phase"] for row in ledger.rows] == ["trace"]


@pytest.mark.parametrize(("append", "kept"), [(True, ["warmup", "sample"]), (False, ["sample"])])
def test_rows_of_earlier_runs_are_kept_where_asked(path: Path, append: bool, kept: list[str]) -> None:
    earlier = Ledger(path, "sample-group-000", append=append)
    earlier.add("warmup", 1.0)
    earlier.save()
    later = Ledger(path, "sample-group-000", append=append)
    later.add("sample", 2.0)
    later.save()
    later.save()
    assert [row["phase"] for row in read(path)] == kept


def test_the_file_is_the_old_one_or_the_new_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path, "sample-group-000")
    ledger.add("warmup", 1.0)
    ledger.save()
    whole = path.read_bytes()
    ledger.add("sample", 2.0)

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        ledger.save()
    assert path.read_bytes() == whole
    assert list(path.parent.iterdir()) == [path]
