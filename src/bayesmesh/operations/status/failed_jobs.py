"""status: the jobs of an experiment whose last attempt failed, from the ends of their logs."""

from __future__ import annotations

import os
from pathlib import Path

from bayesmesh.errors import NOT_AGAIN, last_error
from bayesmesh.workflow.condition import jobs_of
from bayesmesh.workflow.plan import Plan

_TAIL_BYTES = 2**16
"""Number of bytes at the end of a log that contain its error; before it, a long run has a line every few seconds."""


def failed_job(plan: Plan, name: str) -> tuple[str, str]:
    """Return the first job, in the order of the flow, whose last attempt failed, and its error; empty where none has.

    Attempts that were killed, or that another one may continue, do not count as failed. A job that has succeeded since has a new log.
    """
    for _, job in jobs_of(plan, name):
        said = _tail(job.log) if job.log.is_file() else ""
        found = last_error(said) if said.rstrip().endswith(NOT_AGAIN) else None
        if found is not None:
            return job.name, str(found)
    return "", ""


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")
