"""The ledger keeps the rows of completed work and no others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.store.ledger import FINISHED, Ledger, read_rows

COLUMNS = {
    "job", "phase", "detail", "seconds", "gradients", "bytes", "peak_memory_bytes", "device", "at", "slurm_job", "attempt",
    "identity",
}  # fmt: skip


def read(path: Path) -> list[dict[str, Any]]:
    return [{**row} for row in read_rows(path)]


def write_two_attempts(path: Path) -> None:
    for phases in (("start",), ("start", "warmup", "sample")):
        ledger = Ledger(path, "sample-group-000")
        for phase in phases:
            ledger.add(phase, 1.5, detail="a\u2028b")
            ledger.save()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "sample-group-000.json"


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


def test_every_attempt_is_kept_under_its_name(path: Path) -> None:
    write_two_attempts(path)
    ledger = Ledger(path, "sample-group-000")
    ledger.finish()
    ledger.save()
    ledger.save()
    rows = read(path)
    assert [row["phase"] for row in rows] == ["start", "start", "warmup", "sample", FINISHED]
    first, second, third = dict.fromkeys(row["attempt"] for row in rows)
    assert [row["attempt"] for row in rows] == [first, second, second, second, third]


def test_any_change_of_the_file_is_found(path: Path) -> None:
    write_two_attempts(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("1.5", "0.5", 1), encoding="utf-8")
    with pytest.raises(StoreError, match="is damaged") as caught:
        read_rows(path)
    assert str(path) in str(caught.value)
    ledger = Ledger(path, "sample-group-000")
    ledger.add("start", 1.0)
    with pytest.raises(StoreError, match="is damaged"):
        ledger.save()


def test_the_ledger_of_another_experiment_is_found(path: Path, tmp_path: Path) -> None:
    write_two_attempts(path)
    other = tmp_path / "other" / "ledger" / path.name
    other.parent.mkdir(parents=True)
    other.write_bytes(path.read_bytes())
    with pytest.raises(StoreError, match="is the ledger"):
        read_rows(other)
