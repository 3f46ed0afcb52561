"""Say at the end of a run which jobs failed, of which experiments, and why.

Snakemake's last line says only that a job did not complete, and the error is many lines above it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from snakemake.jobs import Job

from bayesmesh.errors import UserError, last_error
from bayesmesh.workflow.plan import Plan

_MOST = 10
"""Maximum number of failures, and of experiments of one failure, that are listed."""

_STARTED = time.time()
"""When this process began to plan, in seconds since 1970."""


def name_failures(plan: Plan) -> None:
    """Print the failed jobs of a run that has ended, with the error in their logs."""
    scheduler = plan.workflow.scheduler
    failed: dict[Job, UserError | None] = {}
    for each in scheduler.failed if scheduler else ():
        errors = {job: _error_of(job) for job in getattr(each, "jobs", [each])}
        # Of jobs that run together on a cluster, one has failed, and those after it did not begin.
        failed |= {job: error for job, error in errors.items() if error} or errors
    ordered = sorted(failed, key=lambda job: (job.rule.name, *job.wildcards))
    shown = [line for job in ordered[:_MOST] for line in _describe(plan, job, failed[job])]
    more = [f"and {len(failed) - _MOST} more"] if len(failed) > _MOST else []
    for line in (*shown, *more):
        print(line, file=sys.stderr, flush=True)


def _error_of(job: Job) -> UserError | None:
    """Return the error with which the log of a job in this run ends; None without one."""
    # Other logs are of earlier runs.
    logs = (path for path in map(Path, job.log) if path.is_file() and path.stat().st_mtime >= _STARTED)
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in logs)
    return next(filter(None, map(last_error, texts)), None)


def _describe(plan: Plan, job: Job, error: UserError | None) -> Iterator[str]:
    """Yield the lines about a job: its rule, its experiments with their files, and its error."""
    names = list(_experiments_of(plan, job))
    files = dict.fromkeys(str(plan.file(name)) for name in names)
    yield f"failed: {job.rule.name}" + (f" of {_listed(names)} ({_listed(files)})" if names else "")
    yield f"  {error or UserError(f'ended without a message; see {", ".join(map(str, job.log)) or "above"}')}"


def _experiments_of(plan: Plan, job: Job) -> Iterator[str]:
    """Yield the experiment of a job; for a job that prepares data, the experiments of this run that need it."""
    values = dict(job.wildcards.items())
    if "experiment" in values:
        yield str(values["experiment"])
    elif "dataset" in values:
        jobs = (dict(each.wildcards.items()) for each in plan.workflow.dag.jobs)
        asked = {str(each["experiment"]) for each in jobs if each.get("experiment") in plan.experiments}
        yield from (
            name
            for name in sorted(asked)
            if plan.dataset(name) == values["dataset"] and values.get("split") in (None, plan.split(name))
        )


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_MOST]) + (f" and {len(every) - _MOST} more" if len(every) > _MOST else "")
