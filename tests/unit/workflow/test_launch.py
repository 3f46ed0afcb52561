"""Several processes of one job."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesmesh.workflow import launch as launch_module
from bayesmesh.workflow.launch import launch
from bayesmesh.workflow.slurm.commands import srun_command

STEP = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "1"}
"""Variables of the only task in a step."""


def test_one_process_per_gpu_on_every_node() -> None:
    command = srun_command(["sample", "--group", "group-000"], 2, 4, gpus=8)
    assert command[:4] == ["srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4"]
    assert "--gpus-per-task=1" in command
    assert command[-6:] == [sys.executable, "-m", "bayesmesh.cli", "sample", "--group", "group-000"]
    assert "--gpus-per-task=1" not in srun_command([], 2, 1, gpus=0)


@pytest.mark.parametrize(
    ("processes", "environ"),
    [("1x1", {}), ("2x4", STEP | {"SLURM_STEP_NUM_TASKS": "8"}), ("1x2", {"JAX_PROCESS_ID": "0"})],
)
def test_a_single_process_or_a_started_one_continues(processes: str, environ: dict[str, str]) -> None:
    assert launch(["sample"], processes, 0, environ) is None


def test_the_command_becomes_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun").write_text("")
    (tmp_path / "srun").chmod(0o755)
    became = []
    monkeypatch.setattr(os, "execvp", lambda program, command: became.append((program, command)))
    launch(["sample"], "2x1", 2, {"PATH": str(tmp_path), "SLURM_JOB_ID": "7"})
    assert became == [("srun", srun_command(["sample"], 2, 1, 2))]
    # A shell from srun, whose step has all resources of the job.
    launch(["sample"], "2x1", 2, {"PATH": str(tmp_path), **STEP})
    assert became[1:] == [("srun", srun_command(["sample"], 2, 1, 2, in_step=True))]
    assert "--overlap" in became[1][1]
    assert "--overlap" not in became[0][1]


def test_in_a_step_of_one_task_the_processes_of_one_node_run_there(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    @contextlib.contextmanager
    def hold(count: int) -> Iterator[None]:
        held.append(count)
        yield
        held.clear()

    monkeypatch.setattr(launch_module, "hold_gpus", hold)
    monkeypatch.setattr(launch_module, "run_processes", lambda words, each, cores, environ: each if held == [2] else 0)
    assert launch(["sample"], "1x3", 2, STEP) == 3
    assert held == [], "the GPUs are locked while they run"
