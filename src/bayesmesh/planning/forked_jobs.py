"""Let Snakemake's directive `benchmark` measure a job together with the fork that does its work.

Snakemake measures a process and its descendants. A fork descends from the server of forks, and is named after its job.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from snakemake.benchmark import BenchmarkTimer

from bayesmesh.running.fork_server import fork_name


def measure_forks() -> None:
    """Add forks to the processes that are measured for a job."""
    begin = BenchmarkTimer.__init__

    @functools.wraps(begin)
    def with_forks(timer: Any, *arguments: Any, **keywords: Any) -> None:
        begin(timer, *arguments, **keywords)
        timer.main.children = functools.partial(_children, timer.main, timer.main.children)

    BenchmarkTimer.__init__ = with_forks


def _children(job: Any, children: Any, recursive: bool) -> list[Any]:
    """Return the processes below that of a job, with the forks that work for it or for one of them."""
    found = children(recursive=recursive)
    names = {fork_name(process.pid) for process in (job, *found)}
    forks = [type(job)(number) for number, name in _process_names() if name in names]
    return [*found, *forks]


def _process_names() -> list[tuple[int, str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.append((int(path.parent.name), path.read_text().strip()))
        except OSError:
            continue
    return found
