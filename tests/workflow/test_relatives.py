"""Folds continue the chains of the whole run, and start by themselves where those mislead."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bayesmesh.store.ledger import read_rows
from workspace import find_job, hashes
from zygote import zygote

CODE = """\
import jax.numpy as jnp


def near(latents, data):
    return jnp.sum(-0.5 * (data["y"] - latents["level"]) ** 2 - 0.9189385332)


def two_modes(latents, data):
    return jnp.sum(-jnp.log1p(((data["y"] - latents["level"]) / 0.1) ** 2) - jnp.log(jnp.pi * 0.1))
"""

EXPERIMENT = {
    "title": "Folds",
    "data": {"source": "table", "files": "rows.csv"},
    "model": {"name": "log_density", "prior": {"level": "normal(0, 100)"}},
    "k_fold": {"folds": 3, "group": "place"},
}


def _run(
    workspace: Any, function: str, places: dict[str, tuple[float, int]]
) -> tuple[list[tuple[float, str]], dict[str, dict[str, str]]]:
    """Run an experiment whose rows are near one value in each place; return its folds by the rows that they leave out."""
    (workspace.root / "mine.py").write_text(CODE)
    noise = np.random.default_rng(1).normal(size=1000)
    rows = [(at + 0.1 * noise[i], place) for place, (at, count) in places.items() for i in range(count)]
    (workspace.root / "rows.csv").write_text("y,place\n" + "".join(f"{y:.4f},{place}\n" for y, place in rows))
    experiment = {**EXPERIMENT, "model": {**EXPERIMENT["model"], "function": f"mine:{function}"}}
    workspace.experiment("trial").write_text(yaml.safe_dump(experiment))
    done = workspace.snakemake("--cores", "2", "trial")
    assert done.returncode == 0, done.stderr[-4000:]
    table = csv.DictReader((workspace.results / "trial" / "k_fold" / "folds.csv").read_text().splitlines())
    return rows, {row["num_rows"]: row for row in table}


def _level(workspace: Any, fold: dict[str, str]) -> dict[str, float]:
    table = (workspace.results / fold["experiment"] / "diagnostics" / "summary.csv").read_text().splitlines()
    (level,) = (row for row in csv.DictReader(table) if row["variable"] == "level")
    return {name: float(level[name]) for name in ("mean", "sd", "mcse_mean")}


def _log(workspace: Any, fold: dict[str, str]) -> str:
    return (workspace.results / fold["experiment"] / "logs" / "sample-group-000.log").read_text()


@pytest.mark.nightly
def test_a_fold_whose_posterior_has_moved_far_is_right(fresh: Any, tmp_path: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    rows, folds = _run(workspace, "near", {"a": (0.0, 5), "b": (0.0, 6), "c": (300.0, 900)})
    assert {fold["verdict"] for fold in folds.values()} == {"pass"}
    for size, place in {"5": "a", "6": "b", "900": "c"}.items():
        kept = np.array([y for y, at in rows if at != place])
        precision = 1e-4 + len(kept)
        level, mean = _level(workspace, folds[size]), kept.sum() / precision
        assert level["mean"] == pytest.approx(mean, abs=5 * level["mcse_mean"])
        assert level["sd"] == pytest.approx(precision**-0.5, rel=0.2)


@pytest.mark.nightly
def test_a_fold_whose_mass_is_in_another_mode_starts_by_itself(fresh: Any, tmp_path: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    _, folds = _run(workspace, "two_modes", {"a": (5.0, 20), "b": (-5.0, 12), "c": (5.0, 4)})
    assert "not continued: the log densities" in _log(workspace, folds["20"])
    assert _level(workspace, folds["20"])["mean"] == pytest.approx(-5.0, abs=0.2)
    assert _level(workspace, folds["12"])["mean"] == pytest.approx(5.0, abs=0.2)
    assert folds["20"]["verdict"] == folds["12"]["verdict"] == "pass"


@pytest.mark.nightly
def test_a_kill_within_the_short_warmup_changes_nothing(fresh: Any, tmp_path: Path) -> None:
    """Chains that continue others go on from their last commit, as any do, and end with the same bytes."""
    workspace = fresh(tmp_path / "copy")
    # The shortest segments: one iteration each.
    sampling = {"chains": 2, "warmup": 80, "draws": 8, "segment_seconds": 1e-6}
    for name, own in {"whole": {}, "heir": {"initial": {"relative": "whole"}}}.items():
        experiment = {
            "title": name,
            "data": {"source": "gaussian"},
            "model": {"name": "gaussian"},
            "kernel": {"name": "nuts"},
        }
        workspace.experiment(name).write_text(yaml.safe_dump({**experiment, "sampling": {**sampling, **own}}))
    posterior = workspace.results / "heir" / "posterior.zarr"
    done = workspace.snakemake("--cores", "2", "results/heir/posterior.sha256")
    assert done.returncode == 0, done.stderr[-4000:]
    expected = hashes(posterior)

    for folder in (workspace.results / "heir", workspace.results / "seals" / "heir"):
        shutil.rmtree(folder)
    running = subprocess.Popen(
        [str(zygote().bin / "snakemake"), "--cores", "1", "results/heir/posterior.sha256"],
        cwd=workspace.root, env=workspace.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    commits = workspace.results / "heir" / "chains"
    while len(list(commits.glob("*/group-000/commits/warmup-*.json"))) < 3:
        assert running.poll() is None, running.communicate()[0][-4000:]
        time.sleep(0.005)
    job = find_job(workspace, "sample")
    assert job is not None
    os.kill(job, signal.SIGKILL)
    running.communicate()
    assert not list(commits.glob("*/group-000/commits/sample-*.json")), "the job was to be killed in its warmup"
    done = workspace.snakemake("--cores", "2", "results/heir/posterior.sha256")
    assert done.returncode == 0, done.stderr[-4000:]
    rows = read_rows(workspace.results / "heir" / "ledger" / "sample-group-000.json")
    assert [row["detail"].split()[0] for row in rows if row["phase"] == "resume"] == ["warmup"]
    assert hashes(posterior) == expected
