"""The step of a job is the command itself, with the options of srun and without the variables of the batch script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = [sys.executable, "-m", "bayesmesh.running.slurm.job_step"]


@pytest.mark.parametrize("options", [[], ["-n1", "--nodes=1"]])
def test_a_step_knows_its_job_and_nothing_that_contradicts_its_options(options: list[str], tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho options "$1" "$2"\nshift 2\nexec "$@"\n')
    srun.chmod(0o755)
    batch = {
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "9",
        "SLURM_MEM_PER_NODE": "1",
        "SRUN_X": "1",
        "SBATCH_X": "1",
        "OTHER": "1",
    }
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        [*STEP, *options, "--", "sh", "-c", "env; exit 5"], env={**os.environ, **batch, "PATH": path}, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("options")] == [f"options {' '.join(options)}"] * bool(options)
    assert {"SLURM_JOB_ID=7", "OTHER=1"} <= set(lines)
    assert not [line for line in lines if line.startswith(("SLURM_CPUS", "SLURM_MEM", "SRUN_", "SBATCH_"))]
