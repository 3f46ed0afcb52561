"""Patch Snakemake's Slurm executor so that it keeps track of its jobs while the scheduler does not answer.

The executor, in version 2.8, asks for the states of all its jobs together. If no attempt is answered, it yields
none of them and never asks again: the workflow then waits forever, even for jobs that have ended.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Protocol

PLUGIN = "snakemake_executor_plugin_slurm"

_MARK = "_bayesmesh_keeps_unreported"


class _Executor(Protocol):
    """The methods of the executor that are wrapped."""

    report_job_success: Callable[..., None]
    report_job_error: Callable[..., None]


type _Check[E: _Executor, J] = Callable[[E, list[J]], AsyncIterator[J]]


def patch_executor() -> None:
    """Make the Slurm executor ask again for jobs without an answer; does nothing if the executor is not loaded."""
    executor = getattr(sys.modules.get(PLUGIN), "Executor", None)
    if executor is not None and not hasattr(executor.check_active_jobs, _MARK):
        executor.check_active_jobs = keep_unreported(executor.check_active_jobs)


def keep_unreported[E: _Executor, J](check: _Check[E, J]) -> _Check[E, J]:
    """Return a method `check_active_jobs` that yields every job whose success or failure it has not reported.

    Args:
        check: the executor's method, which reports ended jobs and yields those to ask for again.
    """

    async def check_active_jobs(self: E, active_jobs: list[J]) -> AsyncIterator[J]:
        settled: set[int] = set()

        def noting(report: Callable[..., None]) -> Callable[..., None]:
            def reported(job: J, *arguments: object, **named: object) -> None:
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
