"""Jobs without an answer from the scheduler are asked for again."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.workflow.slurm import executor_patch
from bayesmesh.workflow.slurm.executor_patch import keep_unreported


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


def test_another_version_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module(executor_patch.PLUGIN)
    monkeypatch.setattr(executor_patch, "VERSION", "2.7.0")
    with pytest.raises(ConfigError, match=r"2\.8\.0 is installed, and 2\.7\.0 is needed"):
        executor_patch.patch_executor()
