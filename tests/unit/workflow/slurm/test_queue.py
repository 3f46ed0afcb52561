"""status: the jobs of this folder among those of a scheduler's queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.workflow.slurm import queue
from bayesmesh.workflow.slurm.queue import Queue, parse_queue, read_queue


def test_jobs_of_this_folder_are_told_apart(tmp_path: Path) -> None:
    lines = [
        f"RUNNING|n1|None|{tmp_path}|rule_sample_wildcards_digits_group-000",
        f"PENDING||Resources|{tmp_path}|rule_sample_wildcards_digits_group-001",
        f"PENDING||Priority|{tmp_path}|rule_average_wildcards_digits-two",
        "RUNNING|n1|None|/elsewhere|rule_sample_wildcards_digits_group-000",
        "RUNNING|n1|None|/elsewhere|a comment of somebody else",
        "",
    ]
    found = parse_queue("\n".join(lines), ["digits", "digits-two"], tmp_path)
    assert {name: [(j.rule, j.state) for j in jobs] for name, jobs in found.items()} == {
        "digits": [("sample", "RUNNING"), ("sample", "PENDING")],
        "digits-two": [("average", "PENDING")],
    }


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec /bin/sleep 30", "squeue did not answer in 0.2 s"),
        ("echo 'squeue: error: cannot contact' >&2; exit 1", "squeue: error: cannot contact"),
        ("echo 'squeue: fatal: Could not establish a configuration source' >&2; exit 1", ""),
        ("exit 3", "squeue ended with exit code 3"),
        ("exit 0", ""),
        (None, ""),
    ],
)
def test_a_queue_that_cannot_be_asked_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, said: str
) -> None:
    if script is not None:
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    # Long enough for a shell to start on a busy machine, unless it is to be too short.
    monkeypatch.setattr(queue, "TIMEOUT_SECONDS", 0.2 if "sleep" in str(script) else 20.0)
    assert read_queue(["digits"], tmp_path) == Queue({}, said)
