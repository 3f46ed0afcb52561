"""Exempt jobs from Snakemake's ``retries`` if their log says that another attempt would end in the same way.

Snakemake retries a failed job whatever its exit code, which cluster executors do not even see.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from snakemake.jobs import GroupJob, Job

from bayesmesh.errors import NOT_AGAIN


def repeat_what_may_succeed() -> None:
    """Let this Snakemake process retry only failed jobs for which another attempt may succeed."""
    started = time.time()
    Job.restart_times = property(lambda job: 0 if is_final(job.log, started) else job.rule.restart_times)
    GroupJob.restart_times = property(lambda group: min(job.restart_times for job in group.jobs))


def is_final(logs: Iterable[str], started: float) -> bool:
    """Return whether a log that was written since some time, in seconds since 1970, ends with `NOT_AGAIN`."""
    return any(said.rstrip().endswith(NOT_AGAIN) for said in read_logs(logs, started))


def read_logs(logs: Iterable[str], started: float) -> Iterator[str]:
    """Yield the texts of the logs that were written since some time, in seconds since 1970; others are of earlier runs."""
    for path in map(Path, logs):
        if path.is_file() and path.stat().st_mtime >= started:
            yield path.read_text(encoding="utf-8", errors="replace")
