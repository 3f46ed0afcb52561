"""Patch Snakemake's Slurm executor, in one version of it: it forgets no job while the scheduler does not answer.

The executor asks for the states of all its jobs together. If no attempt is answered, it yields none of them and never asks
again: the workflow then waits forever, even for jobs that have ended (docs/reports/slurm-executor.md).
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Protocol

from bayesmesh.errors import ConfigError

PLUGIN = "snakemake_executor_plugin_slurm"
VERSION = "2.8.0"

_MARK = "_bayesmesh_keeps_unreported"


class _Executor(Protocol):
    """The methods of the executor that are used."""

    report_job_success: Callable[..., None]
    report_job_error: Callable[..., None]


type _Check[E: _Executor, J] = Callable[[E, list[J]], AsyncIterator[J]]


def patch_executor() -> None:
    """Patch the Slurm executor; does nothing if it is not loaded.

    Raises:
        ConfigError: it has another version than the one that the patch was written for.
    """
    executor = getattr(sys.modules.get(PLUGIN), "Executor", None)
    if executor is None or hasattr(executor.check_active_jobs, _MARK):
        return
    name = PLUGIN.replace("_", "-")
    if (present := version(name)) != VERSION:
        raise ConfigError(f"{name} {present} is installed, and {VERSION} is needed", f"pip install {name}=={VERSION}")
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
