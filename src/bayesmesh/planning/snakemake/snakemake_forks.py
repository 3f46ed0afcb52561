"""Let forks run the stages of a cluster job, and let Snakemake's directive `benchmark` measure them.

Snakemake measures a process and its descendants. A fork descends from the fork server, which Snakemake has started,
and is named after its job. Descendants are read from Linux's lists of children, because scanning all processes of the
machine twice a second takes a tenth of a core.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil  # type: ignore[import-untyped]
from snakemake.benchmark import BenchmarkTimer

from bayesmesh.running.fork_server import fork_name, start_server


def serve(workflow: Any) -> None:
    """Start the fork server for the jobs on this machine; within a cluster job, only if that has several stages.

    Args:
        workflow: Snakemake's workflow.
    """
    # The executor for Slurm may start another Snakemake within the job, which then runs the stages.
    if workflow.dryrun or not workflow.local_exec:
        return
    stages = frozenset(target.rulename for target in workflow.dag_settings.target_jobs)
    if workflow.is_main_process:
        _start(frozenset())
    elif workflow.remote_exec and len(stages) > 1:
        _start(stages)


@functools.cache
def _start(stages: frozenset[str]) -> subprocess.Popen[bytes] | None:
    """Start the process once, and keep it, because it ends once its ``stdin`` is closed."""
    return start_server(stages=stages)


def pass_on_signals() -> None:
    """Ask the jobs on this machine to stop when Snakemake alone is asked; otherwise it would wait for their ends.

    Called after Snakemake has installed its own handlers, which still run.
    """
    end = signal.getsignal(signal.SIGTERM)
    for number, before in (
        (signal.SIGINT, signal.getsignal(signal.SIGINT)),
        (signal.SIGTERM, end),
        (signal.SIGHUP, end),
    ):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, functools.partial(_stop_jobs, before))


def _stop_jobs(before: Any, number: int, frame: FrameType | None) -> None:
    for process in _just_below(os.getpid()):
        # A second SIGTERM has no effect on a job; the fork server ignores it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    if callable(before):
        before(number, frame)


def measure_forks() -> None:
    """Add forks to the processes that are measured for a job."""
    begin = BenchmarkTimer.__init__

    @functools.wraps(begin)
    def with_forks(timer: Any, *arguments: Any, **keywords: Any) -> None:
        begin(timer, *arguments, **keywords)
        timer.main.children = functools.partial(_children, timer.main)

    BenchmarkTimer.__init__ = with_forks


def _children(job: psutil.Process, recursive: bool) -> list[psutil.Process]:
    """Return the processes below that of a job, with the forks that work for it or for one of them, and those below."""
    found = [*_below(job.pid)] if recursive else [*_just_below(job.pid)]
    names = {fork_name(number) for number in (job.pid, *found)}
    forks = [number for number in _below(os.getpid()) if _name(number) in names]
    numbers = [*found, *forks, *(number for fork in forks for number in _below(fork))]
    processes = []
    for number in numbers:
        # It may have ended since.
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(number))
    return processes


def _below(number: int) -> Iterator[int]:
    """Yield all descendants of a process."""
    for child in _just_below(number):
        yield child
        yield from _below(child)


def _just_below(number: int) -> Iterator[int]:
    """Yield the children of a process: those of each of its threads."""
    if not Path("/proc/thread-self/children").exists():
        # A kernel without these lists.
        with contextlib.suppress(psutil.NoSuchProcess):
            yield from (process.pid for process in psutil.Process(number).children())
        return
    try:
        threads = os.listdir(f"/proc/{number}/task")
    except OSError:
        return
    for thread in threads:
        with contextlib.suppress(OSError):
            yield from map(int, Path(f"/proc/{number}/task/{thread}/children").read_text().split())


def _name(number: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/comm").read_text().strip()
    return ""
