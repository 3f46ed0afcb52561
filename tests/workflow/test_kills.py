"""Killed stages and sessions: the same command goes on, and ends with the values of an undisturbed run.

Few kills here; `make chaos` makes as many as asked for.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from chaos.sessions import kill_all
from chaos.values import differing, values_of
from zygote import zygote

STAGES = Path(__file__).parents[1] / "chaos" / "stages.py"


def test_a_killed_stage_leaves_the_values_of_an_undisturbed_run(workspace: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(STAGES), "--kills", "3", "--seed", "5"],
        cwd=workspace.root, env=workspace.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kills of stages, 0 wrong" in done.stdout


@pytest.mark.nightly
def test_a_killed_repair_goes_on_by_the_same_command(completed: Any, tmp_path: Path) -> None:
    workspace = completed.copy(tmp_path / "copy")
    expected = values_of(workspace.results)
    (workspace.results / "films" / "diagnostics" / "summary.csv").unlink()
    # Killed when its Snakemake has begun a job.
    command = ["verify", "--repair", "films"]
    running = subprocess.Popen(
        [str(zygote().bin / "bayesmesh"), *command],
        cwd=workspace.root, env=workspace.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not list((workspace.root / ".snakemake" / "incomplete").glob("*")):
        assert running.poll() is None, "the session was to be killed"
        time.sleep(0.01)
    kill_all(workspace.root)
    running.wait()

    done = workspace.run("bayesmesh.cli", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert differing(expected, values_of(workspace.results)) == []
