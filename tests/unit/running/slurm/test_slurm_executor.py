"""Jobs without an answer from the scheduler are asked for again, and a job starts Snakemake once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.iocontainers import ResourceList
from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_interface_executor_plugins.executors.real import RealExecutor

from bayesmesh.running.slurm.slurm_executor import keep_unreported, start_once


class Executor:
    """Behaves like the plugin: yields nothing while the scheduler is silent."""

    def __init__(self) -> None:
        self.states: dict[str, str] | None = None
        self.succeeded: list[str] = []
        self.failed: list[tuple[str, str]] = []

    def report_job_success(self, job: str) -> None:
        self.succeeded.append(job)

    def report_job_error(self, job: str, msg: str) -> None:
        self.failed.append((job, msg))

    async def check_active_jobs(self, active_jobs: list[str]) -> AsyncIterator[str]:
        if self.states is None:
            return
        for job in active_jobs:
            if self.states[job] == "COMPLETED":
                self.report_job_success(job)
            elif self.states[job] == "FAILED":
                self.report_job_error(job, msg="it failed")
            else:
                yield job


def _ask(executor: Executor, jobs: list[str]) -> list[str]:
    check = keep_unreported(Executor.check_active_jobs)

    async def ask() -> list[str]:
        return [job async for job in check(executor, jobs)]

    return asyncio.run(ask())


def test_no_job_is_forgotten() -> None:
    executor, jobs = Executor(), ["one", "two", "three"]
    assert _ask(executor, jobs) == jobs, "the scheduler is silent"
    executor.states = {"one": "COMPLETED", "two": "RUNNING", "three": "FAILED"}
    assert _ask(executor, jobs) == ["two"]
    assert (executor.succeeded, executor.failed) == (["one"], [("three", "it failed")])


class Submitting(SlurmExecutor):
    """The plugin as far as it forms the command of a job."""

    def __init__(self, array_jobs: set[str], *, as_script: bool = False) -> None:
        arguments = SimpleNamespace(
            general_args=lambda **_: "--force", precommand=lambda **_: "module load python", envvars=dict
        )
        settings = SimpleNamespace(shared_fs_usage=frozenset())
        self.workflow = SimpleNamespace(
            spawned_job_args_factory=arguments, storage_settings=settings, main_snakefile="Snakefile",
            executor_settings=SimpleNamespace(pass_command_as_script=as_script), group_settings=SimpleNamespace(local_groupid=None),
            executor_plugin=SimpleNamespace(common_settings=SimpleNamespace(pass_envvar_declarations_to_cmd=False)),
        )  # fmt: skip
        self.array_jobs, self.snakefile = array_jobs, "Snakefile"
        self._job_submission_executor = None

    def get_python_executable(self) -> str:
        return sys.executable

    def get_job_args(self, job: Any, **_: Any) -> str:
        return "--target-jobs sample:"


def _command(executor: Submitting, **resources: object) -> tuple[str, str]:
    """Return the command of a job, and what it is without the patch."""
    job = SimpleNamespace(threads=4, resources=ResourceList(fromdict=resources), is_group=lambda: False)
    return start_once(RealExecutor.format_job_exec)(executor, job), RealExecutor.format_job_exec(executor, job)


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        ({"cpus_per_task": 2, "gpu": 1}, "-n1 --cpu-bind=q --cpus-per-task=2 --gpus=1 --nodes=1"),
        ({}, "-n1 --cpu-bind=q --cpus-per-task=4  --nodes=1"),
        # The rule itself calls srun.
        ({"mpi": "srun", "cpus_per_task": 2, "gpu": 8, "nodes": 2}, ""),
    ],
)
def test_a_job_starts_one_snakemake_in_a_step_with_its_resources(resources: dict[str, object], options: str) -> None:
    command, before = _command(Submitting(set()), **resources)
    assert f"{sys.executable} -m snakemake " in before
    assert "--executor slurm-jobstep --jobs 1" in before
    step = f"{sys.executable} -m bayesmesh.running.slurm.job_step {options} -- {sys.executable} -m bayesmesh.cli run "
    assert command.startswith(f"module load python && {step}--snakefile ")
    assert "jobstep" not in command


def test_commands_of_job_arrays_and_unknown_ones_stay_as_they_are() -> None:
    for executor in (Submitting({"sample"}), Submitting(set(), as_script=True)):
        command, before = _command(executor)
        assert command == before
