"""Patch Snakemake's Slurm executor: it forgets no job while the scheduler does not answer, and starts Snakemake once per job.

The executor, in version 2.8, asks for the states of all its jobs together. If no attempt is answered, it yields
none of them and never asks again: the workflow then waits forever, even for jobs that have ended.

Each job is a Snakemake that starts another one with srun. The command of a job here is that of the second one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

PLUGIN = "snakemake_executor_plugin_slurm"

_MARK = "_bayesmesh_keeps_unreported"


_TWICE = " --executor slurm-jobstep --jobs 1"
"""How the executor asks for a second Snakemake."""


class _Executor(Protocol):
    """The methods of the executor that are wrapped."""

    array_jobs: set[str]
    format_job_exec: Callable[..., str]

    report_job_success: Callable[..., None]
    report_job_error: Callable[..., None]


type _Check[E: _Executor, J] = Callable[[E, list[J]], AsyncIterator[J]]


def patch_executor() -> None:
    """Patch the Slurm executor; does nothing if it is not loaded."""
    executor = getattr(sys.modules.get(PLUGIN), "Executor", None)
    if executor is not None and not hasattr(executor.check_active_jobs, _MARK):
        executor.check_active_jobs = keep_unreported(executor.check_active_jobs)
        executor.format_job_exec = start_once(executor.format_job_exec)


def start_once[E: _Executor, J](format_job_exec: Callable[[E, J], str]) -> Callable[[E, J], str]:
    """Return a method `format_job_exec` whose command starts one Snakemake, in a step of its own unless a rule calls srun itself.

    A command that is not as expected stays as it is, and so do those of job arrays, whose tasks the second Snakemake finds,
    and those with options of its own.

    Args:
        format_job_exec: the executor's method.
    """

    @functools.wraps(format_job_exec)
    def wrapped(self: E, job: J) -> str:
        command = format_job_exec(self, job)
        start = f"{sys.executable} -m snakemake "
        if self.array_jobs or start not in command or f"{_TWICE} " not in command or "--slurm-jobstep-" in command:
            return command
        # `bayesmesh run` is Snakemake without an import of pandas.
        run = f"{sys.executable} -m bayesmesh.cli run "
        once = f"{sys.executable} -m bayesmesh.running.slurm.job_step {_step_options(job)} -- {run}"
        return command.replace(_TWICE, "", 1).replace(start, once, 1)

    return wrapped


def _step_options(job: Any) -> str:
    """Return the options of srun with which the second Snakemake was started; none if a rule calls srun itself."""
    from snakemake_executor_plugin_slurm_jobstep import (  # type: ignore[import-untyped]
        get_cpu_setting,
        get_gpu_setting,
        get_node_setting,
    )

    if job.resources.get("mpi") is not None:
        return ""
    gpus = get_gpu_setting(job)
    return f"-n1 --cpu-bind=q {get_cpu_setting(job, bool(gpus))} {gpus} {get_node_setting(job)}"


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
