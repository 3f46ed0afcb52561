"""The ledger's rows for queueing, starting and ending, with a script as the queue."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.store.ledger import Ledger, read_rows
from bayesmesh.workflow.overhead import add_ends, add_start, process_started


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with squeue's output; the job number is 7."""
    said, program = tmp_path / "said", tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$SLURM_TIME_FORMAT" = %s ] && cat {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return said


def rows(ledger: Ledger) -> dict[str, dict[str, Any]]:
    return {row["phase"]: row for row in ledger.rows}


def test_a_process_knows_when_it_began() -> None:
    begun = process_started()
    assert begun is not None
    assert 0 < time.time() - begun < 24 * 3600
    assert process_started(Path("/nowhere")) is None


def test_the_first_stage_of_a_job_has_its_wait_and_the_next_ones_have_not(queue: Path, tmp_path: Path) -> None:
    begun = process_started()
    assert begun is not None
    queue.write_text(f"7|{begun - 50:.0f}|{begun - 20:.0f}|{begun + 600:.0f}|RUNNING\n")
    first = Ledger(tmp_path / "assemble.json", "assemble")
    add_start(first, os.environ)
    found = rows(first)
    assert found["queue"]["seconds"] == pytest.approx(30, abs=1)
    assert found["launch"]["seconds"] == pytest.approx(20, abs=1)
    assert found["queue"]["detail"] == "Slurm job 7"
    first.save()

    second = Ledger(tmp_path / "diagnose.json", "diagnose")
    add_start(second, os.environ)
    assert set(rows(second)) == {"launch", "start"}
    # The process of the test is older than the row before it.
    assert rows(second)["launch"]["seconds"] == 0


def test_a_job_that_was_started_again_has_waited_again(queue: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "sample-group-000.json", "sample-group-000")
    ledger.add("sample", 5.0)
    ledger.rows[-1]["at"] = time.time() - 100_000
    ledger.save()
    queue.write_text(f"7|{time.time() - 90_000:.0f}|{time.time() - 89_990:.0f}|N/A|RUNNING\n")
    again = Ledger(ledger.path, "sample-group-000")
    add_start(again, os.environ)
    assert rows(again)["queue"]["seconds"] == pytest.approx(10, abs=1)


def test_ends_are_of_jobs_that_have_ended_and_are_written_once(queue: Path, tmp_path: Path) -> None:
    now = int(time.time())
    for job, number in (("compile", "5"), ("sample-group-000", "6"), ("assemble", "7"), ("report", "7")):
        ledger = Ledger(tmp_path / f"{job}.json", job)
        ledger.add("run", 1.0)
        ledger.rows[-1].update(slurm_job=number, at=float(now))
        ledger.save()
    queue.write_text(f"5|{now - 9}|{now - 8}|{now + 3}|COMPLETED\n6|{now - 9}|{now - 8}|{now + 600}|RUNNING\n")
    for _ in range(2):
        add_ends(Ledger(tmp_path / "report.json", "report"), os.environ)
    (row,) = read_rows(tmp_path / "slurm.json")
    assert (row["job"], row["phase"], row["seconds"], row["detail"]) == ("compile", "teardown", 3.0, "Slurm job 5")
    (of_job,) = read_rows(tmp_path / "compile.json")
    assert row["attempt"] == of_job["attempt"]
