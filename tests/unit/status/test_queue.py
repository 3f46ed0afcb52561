"""status: the jobs of this folder among those of a scheduler's queue."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.status.queue import parse_queue


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
