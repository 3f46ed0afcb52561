"""Let Snakemake's directive `benchmark` measure a job together with the fork that does its work.

Snakemake measures a process and its descendants. A fork descends from the server of forks, which Snakemake has started,
and is named after its job. Descendants are read from Linux's lists of children, because a look at all processes of the
machine, twice a second, takes a tenth of a core.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from snakemake.benchmark import BenchmarkTimer

from bayesmesh.running.fork_server import fork_name


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
