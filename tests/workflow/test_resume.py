"""More draws extend, fewer draws cut, and a killed job goes on where it was: always the same run, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bayesmesh.store.ledger import read_rows
from workspace import find_job, hashes
from zygote import zygote

FEW, MANY = 8, 40
POSTERIOR = "results/films/posterior.zarr"
TARGET = "results/films/posterior.sha256"


def _draws(workspace: Any) -> dict[str, np.ndarray]:
    root = zarr.open_group(str(workspace.root / POSTERIOR), mode="r")
    return {
        f"{group}/{name}": np.asarray(array)
        for group in ("posterior", "sample_stats")
        for name, array in root[group].arrays()
        if array.ndim > 1  # not a coordinate
    }


def _phases(workspace: Any, phase: str) -> list[dict[str, Any]]:
    rows = read_rows(workspace.results / "films" / "ledger" / "sample-group-000.json")
    return [{**row} for row in rows if row["phase"] == phase]


def _commits(workspace: Any, group: str = "group-000") -> list[Path]:
    return sorted(workspace.results.glob(f"films/chains/*/{group}/commits/sample-*.json"))


@pytest.fixture(scope="module")
def extended(completed: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a copy in which the number of draws was raised; nobody may change it."""
    workspace = completed.copy(tmp_path_factory.mktemp("extended") / "copy")
    workspace.set("films", "sampling.draws", MANY)
    done = workspace.snakemake("--cores", "2", TARGET)
    assert done.returncode == 0, done.stderr[-4000:]
    return workspace


def test_more_draws_extend_the_chains(completed: Any, extended: Any) -> None:
    before, after = _draws(completed), _draws(extended)
    assert before.keys() == after.keys()
    for name, values in before.items():
        assert values.shape[:2] == (4, FEW)
        assert after[name].shape[:2] == (4, MANY)
        np.testing.assert_array_equal(after[name][:, :FEW], values, err_msg=name)
    assert len(np.unique(after["posterior/user_biases"][0, :, 0])) > FEW


def test_only_the_further_draws_were_computed(completed: Any, extended: Any) -> None:
    (first,) = _phases(completed, "sample")
    again, further = _phases(extended, "sample")
    assert again == first
    # Two chains of two leapfrog steps in each group; an attempt states what all its draws took.
    assert first["gradients"] == FEW * 2 * 2
    assert further["gradients"] == MANY * 2 * 2
    assert further["seconds"] > first["seconds"]
    (warmup, stated) = _phases(extended, "warmup")
    assert (warmup["seconds"], warmup["gradients"]) == (stated["seconds"], stated["gradients"])
    assert [row["detail"] for row in _phases(extended, "resume")] == [f"sample {FEW}"]


def _kill_when(workspace: Any, commits: int, running: subprocess.Popen[str]) -> dict[Path, int]:
    """Kill the job that samples once there are so many commits, without warning; returns when each of them was made."""
    while len(_commits(workspace)) < commits:
        assert running.poll() is None, running.communicate()[0][-4000:]
        time.sleep(0.005)
    job = find_job(workspace, "sample")
    assert job is not None
    os.kill(job, signal.SIGKILL)
    return {path: path.stat().st_mtime_ns for path in _commits(workspace)[:commits]}


def test_a_job_that_is_killed_and_tried_again_ends_with_the_same_bytes(
    completed: Any, extended: Any, tmp_path: Path
) -> None:
    """Killed, tried again by the same Snakemake, and killed again so that it gives up; a new Snakemake goes on."""
    workspace = completed.copy(tmp_path / "copy")
    workspace.set("films", "sampling.draws", MANY)
    manifest = "results/films/chains/group-000.json"
    running = subprocess.Popen(
        [str(zygote().bin / "snakemake"), "--cores", "1", "--retries", "1", manifest],
        cwd=workspace.root, env=workspace.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    first = _kill_when(workspace, FEW + 4, running)
    second = _kill_when(workspace, FEW + 12, running)
    assert {path: second[path] for path in first} == first, "the second attempt goes on, and makes nothing again"
    said, _ = running.communicate()
    assert running.returncode != 0, said[-4000:]
    left = len(_commits(workspace))
    assert FEW + 12 <= left < MANY, "the job was to be killed in the middle"
    assert json.loads((workspace.root / manifest).read_text())["num_draws"] == FEW, (
        "that of the last successful run stays"
    )

    done = workspace.snakemake("--cores", "2", TARGET)
    assert done.returncode == 0, done.stderr[-4000:]
    # At most the segment that was being written is made again.
    resumed = [int(row["detail"].split()[1]) for row in _phases(workspace, "resume")]
    assert resumed[-1] == left
    assert hashes(workspace.root / POSTERIOR) == hashes(extended.root / POSTERIOR)
