"""A full disk and a folder that cannot be written end a job with one message, and cost nothing that was committed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.store.ledger import read_rows
from bayesmesh.workflow.jobs import make_job
from zygote import zygote

# A disk that is full after so many bytes of draws: the failure comes from the system call that writes.
FULL = """
import builtins, errno, os, sys
from pathlib import Path
left = int(sys.argv.pop(1))
original = Path.write_bytes
def write(self, data):
    global left
    if self.parent.name == "staged":
        left -= memoryview(data).nbytes
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return original(self, data)
Path.write_bytes = write
from bayesmesh.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def run(user_environment: Mapping[str, str]) -> Any:
    """Return a function that runs a stage on a tiny experiment, on a disk with so many bytes left where that is given."""

    def run(stage: str, results: Path, left: int | None = None) -> subprocess.CompletedProcess[str]:
        config = {
            "title": "Some", "data": {"source": "gaussian", "num_rows": 20}, "model": {"name": "gaussian"},
            "kernel": {"name": "hmc", "num_leapfrog_steps": 2},
            "sampling": {"chains": 2, "warmup": 4, "draws": 12, "segment_seconds": 1e-6},
        }  # fmt: skip
        spec = make_job(stage, "some", experiment_class().model_validate(config), str(results)).canonical()
        if left is None:
            return zygote().run(["bayesmesh.cli", stage, "--spec", spec], Path.cwd(), user_environment)
        return subprocess.run(
            [sys.executable, "-c", FULL, str(left), stage, "--spec", spec],
            env=user_environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def test_a_full_disk_keeps_what_is_committed(run: Any, tmp_path: Path) -> None:
    for stage in ("fetch", "shard", "compile"):
        assert run(stage, tmp_path).returncode == 0
    full = run("sample", tmp_path, left=10_000)
    assert full.returncode == 5, full.stderr
    assert (
        f"{os.strerror(errno.ENOSPC)}\n  remedy: free some space and run it again: it continues from the last commit"
        in full.stderr
    )
    assert "Traceback" not in full.stderr
    markers = list(tmp_path.glob("some/chains/*/group-000/commits/*.json"))
    assert 0 < len(markers) < 16, "some were committed"
    done = run("sample", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "some" / "chains" / "group-000.json").read_text())["committed_draws"] == 12
    rows = read_rows(tmp_path / "some" / "ledger" / "sample-group-000.json")
    (resumed,) = (row["detail"] for row in rows if row["phase"] == "resume")
    assert resumed in {f"{p.stem.split('-')[0]} {int(p.stem.split('-')[2])}" for p in markers}
