"""A job that is asked to stop commits what it has, says so with exit code 75, and goes on later as if nothing were."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.experiment.experiment import experiment_class
from bayesmesh.experiment.stages import make_spec
from bayesmesh.store.arrays import open_group

ENDLESS = 50_000_000


def _spec(stage: str, results: Path, draws: int, **sampling: Any) -> str:
    config = {
        "title": "Asked to stop",
        "data": {"source": "gaussian", "num_rows": 20},
        "model": {"name": "gaussian"},
        "kernel": {"name": "hmc", "num_leapfrog_steps": 3},
        "sampling": {"chains": 2, "warmup": 10, "draws": draws, **sampling},
    }
    return make_spec(stage, "stopped", experiment_class().model_validate(config), str(results)).canonical()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, user_environment: Mapping[str, str]) -> Callable[..., Any]:
    """Return a function that runs a stage's command line in one folder of results, where the program is compiled."""
    results = tmp_path_factory.mktemp("signals") / "results"

    def start(stage: str, draws: int, **sampling: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bayesmesh.cli", stage, "--spec", _spec(stage, results, draws, **sampling)]
        return subprocess.Popen(
            command, env=user_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    start.results = results  # type: ignore[attr-defined]
    for stage in ("fetch", "shard", "compile"):
        done = start(stage, 10)
        said, _ = done.communicate()
        assert done.returncode == 0, said
    return start


def _group(results: Path) -> Path:
    (found,) = results.glob("stopped/chains/*/group-000")
    return found


def _wait_for(pattern: str, results: Path, job: subprocess.Popen[str]) -> None:
    while not list(results.glob(f"stopped/chains/*/group-000/{pattern}")):
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT], ids=lambda n: n.name)
def test_a_job_that_is_asked_to_stop_commits_what_it_has(prepared: Any, number: signal.Signals) -> None:
    """Also in the middle of a segment: it does not wait for the end of a minute."""
    seed = int(number)
    job = prepared("sample", ENDLESS, seed=seed)
    before = set(prepared.results.glob("stopped/chains/*/group-000/commits/sample-*.json"))
    while not set(prepared.results.glob("stopped/chains/*/group-000/commits/warmup-*.json")) or len(
        list(prepared.results.glob("stopped/chains/*"))
    ) <= len(list(before)):
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.01)
    time.sleep(1)
    asked = time.monotonic()
    job.send_signal(number)
    said, _ = job.communicate(timeout=60)
    took = time.monotonic() - asked
    assert job.returncode == 75, said
    assert f"asked to stop by {number.name}; committed: sample " in said
    assert "run it again: it goes on from there" in said
    assert took < 20, "within its grace time"
    folder = max(prepared.results.glob("stopped/chains/*/group-000"), key=lambda p: p.stat().st_mtime)
    assert not (folder / "writer.json").exists(), "the lock is free"
    (last,) = folder.glob("commits/sample-*.json")
    committed = int(last.stem.rpartition("-")[2])
    assert committed > 0
    assert not list(prepared.results.glob("stopped/chains/group-*.json")) or seed

    done = prepared("sample", committed + 7, seed=seed)
    said, _ = done.communicate()
    assert done.returncode == 0, said
    manifest = json.loads((prepared.results / "stopped" / "chains" / "group-000.json").read_text())
    assert manifest["committed_draws"] == committed + 7
    cut = np.asarray(open_group(folder / "draws.zarr")["posterior/mean"][...])
    folder.rename(folder.with_name("cut"))
    done = prepared("sample", committed + 7, seed=seed)
    said, _ = done.communicate()
    assert done.returncode == 0, said
    whole = np.asarray(open_group(folder / "draws.zarr")["posterior/mean"][...])
    np.testing.assert_array_equal(cut, whole)
