"""What a workflow does while the scheduler does not answer: it waits, and forgets no job.

Snakemake's executor for Slurm 2.8 asks for the states of all its jobs together. When no attempt is answered, it passes
on none of them, and never asks again: the workflow then waits for ever, also for jobs that have long ended.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

__all__ = ["outlast_silence", "remembering"]

PLUGIN = "snakemake_executor_plugin_slurm"

_MARK = "_bayesmesh_remembers"


def outlast_silence() -> None:
    """Let the executor for Slurm ask again for jobs of which it has heard nothing; does nothing where it is not loaded."""
    executor = getattr(sys.modules.get(PLUGIN), "Executor", None)
    if executor is not None and not hasattr(executor.check_active_jobs, _MARK):
        executor.check_active_jobs = remembering(executor.check_active_jobs)


def remembering(
    check: Callable[[Any, list[Any]], AsyncIterator[Any]],
) -> Callable[[Any, list[Any]], AsyncIterator[Any]]:
    """Return a method `check_active_jobs` that passes on every job, unless it has reported its success or its failure.

    Args:
        check: the executor's own: it reports jobs that have ended and yields those that are to be asked for again.
    """

    async def check_active_jobs(self: Any, active_jobs: list[Any]) -> AsyncIterator[Any]:
        settled: set[int] = set()

        def noting(report: Callable[..., None]) -> Callable[..., None]:
            def reported(job: Any, *arguments: Any, **named: Any) -> None:
                settled.add(id(job))
                report(job, *arguments, **named)

            return reported

        self.report_job_success = noting(type(self).report_job_success.__get__(self))
        self.report_job_error = noting(type(self).report_job_error.__get__(self))
        try:
            async for job in check(self, active_jobs):
                settled.add(id(job))
                yield job
        finally:
            del self.report_job_success, self.report_job_error
        for job in active_jobs:
            if id(job) not in settled:
                yield job

    setattr(check_active_jobs, _MARK, True)
    return check_active_jobs
