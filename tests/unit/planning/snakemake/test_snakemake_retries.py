"""Snakemake repeats a failed job only if another attempt may succeed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.jobs import GroupJob, Job

from bayesmesh.cli import main
from bayesmesh.errors import NOT_AGAIN
from bayesmesh.planning.snakemake.snakemake_retries import is_final, repeat_what_may_succeed


def test_the_log_of_a_job_says_that_it_would_fail_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose", "--spec", "missing.json", "--log", "some.log"]) == 2
    assert is_final(["other.log", "some.log"], 0.0)
    os.utime("some.log", (1.0, 1.0))
    assert not is_final(["some.log"], 2.0), "a log of an earlier run"


def test_the_log_of_a_killed_job_says_nothing(tmp_path: Path) -> None:
    log = tmp_path / "some.log"
    log.write_text(f"{NOT_AGAIN}\nmore\n")
    assert not is_final([str(log)], 0.0)


def test_a_job_of_that_kind_and_its_group_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Job, GroupJob):
        monkeypatch.setattr(cls, "restart_times", cls.restart_times)
    repeat_what_may_succeed()
    logs = [tmp_path / name for name in ("final.log", "killed.log")]
    logs[0].write_text(f"error: no\n10:00:00 {NOT_AGAIN}\n")
    logs[1].write_text("begun\n")
    os.utime(logs[0], (time.time() + 1, time.time() + 1))
    times = [Job.restart_times.fget(SimpleNamespace(log=[str(p)], rule=SimpleNamespace(restart_times=8))) for p in logs]
    assert times == [0, 8]
    group = SimpleNamespace(jobs=[SimpleNamespace(restart_times=each) for each in times])
    assert GroupJob.restart_times.fget(group) == 0
