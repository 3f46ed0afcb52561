"""The workflow starts a server of forks, whose jobs do and measure what jobs of their own processes do."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

from workspace import Workspace


def test_forks_make_what_processes_make(workspace: Workspace) -> None:
    results = workspace.results / "films"
    made = [results / "diagnostics" / name for name in ("summary.csv", "verdict.json")]
    before = [path.read_bytes() for path in made]
    environment = {k: v for k, v in workspace.environment.items() if k != "BAYESMESH_FORK_SERVER"}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--forcerun", "diagnose", "--", "films"]
    with (workspace.root / "forks.log").open("w+") as log:
        run, names = subprocess.Popen(command, cwd=workspace.root, env=environment, stderr=log), set[str]()
        while run.poll() is None:
            names |= set(_names())
            time.sleep(0.01)
        log.seek(0)
        assert run.returncode == 0, log.read()
    # Diagnose and report.
    assert len({name for name in names if name.startswith("job-")}) >= 2
    assert [path.read_bytes() for path in made] == before
    assert workspace.planned("films") == []
    with (results / "benchmarks" / "diagnose.tsv").open() as file:
        (row,) = csv.DictReader(file, delimiter="\t")
    # A process that waits for its fork takes a tenth of it.
    assert float(row["max_rss"]) > 100


def _names() -> list[str]:
    found = []
    for number in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            found.append(Path("/proc", number, "comm").read_text().strip())
        except OSError:
            continue
    return found
