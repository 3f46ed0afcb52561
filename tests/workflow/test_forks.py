"""The workflow starts a server of forks, whose jobs do and measure what jobs of their own processes do."""

from __future__ import annotations

import collections
import contextlib
import csv
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workspace import Workspace

RUN = "import sys; from bayesmesh.cli import main; main(['run', *sys.argv[1:]])"


@pytest.mark.nightly
def test_forks_make_what_processes_make(workspace: Workspace) -> None:
    results = workspace.results / "films"
    made = [results / "diagnostics" / name for name in ("summary.csv", "verdict.json")]
    before = [path.read_bytes() for path in made]
    jobs = _run(workspace, "--forcerun", "diagnose", "--", "films")
    # Diagnose and report.
    assert len(set().union(*jobs.values())) >= 2
    assert [path.read_bytes() for path in made] == before
    assert workspace.planned("films") == []
    with (results / "benchmarks" / "diagnose.tsv").open() as file:
        (row,) = csv.DictReader(file, delimiter="\t")
    # A process that waits for its fork takes a tenth of it.
    assert float(row["max_rss"]) > 100


def _run(workspace: Workspace, *words: str) -> dict[int, set[str]]:
    """Run the workflow with a server of forks; return each fork's number -> its names, one for each of its jobs."""
    environment = {k: v for k, v in workspace.environment.items() if k != "BAYESMESH_FORK_SERVER"}
    command = [sys.executable, "-c", RUN, "--cores", "2", *words]
    found = collections.defaultdict[int, set[str]](set)
    with (workspace.root / "forks.log").open("w+") as log:
        run = subprocess.Popen(command, cwd=workspace.root, env=environment, stderr=log)
        while run.poll() is None:
            for number, name in _names():
                found[number].add(name)
            time.sleep(0.01)
        log.seek(0)
        assert run.returncode == 0, log.read()
    return found


def _names() -> Iterator[tuple[int, str]]:
    """Yield number and name of the forks of all servers."""
    for number in (name for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            name = Path("/proc", number, "comm").read_text().strip()
            if name.startswith("job-"):
                yield int(number), name
