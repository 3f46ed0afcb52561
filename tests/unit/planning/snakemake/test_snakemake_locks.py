"""A lock of Snakemake holds as long as its owner lives, and only then."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.persistence.file import FilePersistence

from bayesmesh.planning.snakemake.snakemake_locks import ignore_abandoned_locks
from bayesmesh.store.lock import this_process

CHILD = """
import os, signal, sys
from pathlib import Path
from snakemake.persistence.file import FilePersistence
from bayesmesh.planning.snakemake.snakemake_locks import ignore_abandoned_locks
ignore_abandoned_locks()
FilePersistence(path=Path(sys.argv[1]))._write_locks("output", ["results/a", "results/b"])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def persistence(tmp_path: Path) -> FilePersistence:
    ignore_abandoned_locks()
    return FilePersistence(path=tmp_path)


def _lock_in_a_child(folder: Path) -> None:
    """Let a process take the lock and be killed."""
    child = subprocess.run([sys.executable, "-c", CHILD, str(folder)], check=False)
    assert child.returncode == -signal.SIGKILL


def test_a_lock_of_a_living_owner_holds(persistence: FilePersistence) -> None:
    persistence._write_locks("output", ["results/a"])
    persistence._write_locks("input", ["results/b"])
    found = set(persistence._read_locks())
    assert {("output", "results/a"), ("input", "results/b")} <= found


def test_a_lock_of_a_killed_owner_is_ignored_and_named(
    persistence: FilePersistence, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _lock_in_a_child(tmp_path)
    with caplog.at_level(logging.WARNING, "bayesmesh"):
        assert list(persistence._read_locks()) == []
    assert "ignoring the lock of process" in caplog.text


def test_a_lock_of_the_next_owner_holds_beside_that_of_a_killed_one(
    persistence: FilePersistence, tmp_path: Path
) -> None:
    _lock_in_a_child(tmp_path)
    persistence._write_locks("output", ["results/a"])
    assert [key for _, key in persistence._read_locks() if key.startswith("results")] == ["results/a"]


@pytest.mark.parametrize("change", [{"boot": "another"}, {"host": "elsewhere"}, {"started_ticks": ""}])
def test_a_lock_whose_owner_cannot_be_looked_up_holds(
    persistence: FilePersistence, tmp_path: Path, change: dict[str, str]
) -> None:
    owner = json.dumps({**this_process(), "pid": 2**22 + 1, **change})
    (tmp_path / "locks" / "0.output.lock").write_text(f"owner: {owner}\nresults/a\n")
    assert ("output", "results/a") in set(persistence._read_locks())


def test_a_lock_without_owner_holds(persistence: FilePersistence, tmp_path: Path) -> None:
    """Snakemake has written it by itself."""
    (tmp_path / "locks" / "0.output.lock").write_text("results/a\n")
    assert list(persistence._read_locks()) == [("output", "results/a")]


@pytest.mark.parametrize("text", ["", "owner: {", "owner: {}"])
def test_a_lock_that_was_cut_off_locks_nothing(persistence: FilePersistence, tmp_path: Path, text: str) -> None:
    (tmp_path / "locks" / "0.output.lock").write_text(text)
    assert [key for _, key in persistence._read_locks() if key.startswith("results")] == []
