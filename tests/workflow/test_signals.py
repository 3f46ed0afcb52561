"""A job that is asked to stop commits what it has, says so with exit code 75, and goes on later as if nothing were."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.planning.plan_specs import make_spec
from bayesmesh.store.zarr_arrays import open_group
from zygote import zygote

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
        command = [str(zygote().bin / "bayesmesh"), stage, "--spec", _spec(stage, results, draws, **sampling)]
        return subprocess.Popen(
            command, env=user_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    start.results = results  # type: ignore[attr-defined]
    for stage in ("fetch", "shard", "compile"):
        done = start(stage, ENDLESS)
        said, _ = done.communicate()
        assert done.returncode == 0, said
    return start


def _begun(results: Path, known: set[Path], job: subprocess.Popen[str]) -> Path:
    """Wait until a chain group that was not known has ended its warmup; returns its folder."""
    while True:
        for folder in set(results.glob("stopped/chains/*/group-000")) - known:
            if (folder / "commits" / "warmup-000000000-000000010.json").exists():
                return folder
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT], ids=lambda n: n.name)
def test_a_job_that_is_asked_to_stop_commits_what_it_has(prepared: Any, number: signal.Signals) -> None:
    """Also in the middle of a segment: it does not wait for the end of a minute."""
    known = set(prepared.results.glob("stopped/chains/*/group-000"))
    job = prepared("sample", ENDLESS, seed=int(number))
    folder = _begun(prepared.results, known, job)
    time.sleep(1)
    asked = time.monotonic()
    job.send_signal(number)
    said, _ = job.communicate(timeout=60)
    took = time.monotonic() - asked
    assert job.returncode == 75, said
    assert f"asked to stop by {number.name}; committed: sample " in said
    assert "run it again: it goes on from there" in said
    assert took < 20, "within its grace time"
    assert not (folder / "writer.json").exists(), "the lock is free"
    last = max(folder.glob("commits/sample-*.json"))
    committed = int(last.stem.rpartition("-")[2])
    assert committed > 0

    _finish(prepared, committed + 7, int(number))
    manifest = json.loads((prepared.results / "stopped" / "chains" / "group-000.json").read_text())
    assert manifest["committed_draws"] == committed + 7
    if number != signal.SIGTERM:
        # They differ in nothing that follows.
        return
    cut = np.asarray(open_group(folder / "draws.zarr")["posterior/mean"][...])
    folder.rename(folder.with_name("cut"))
    _finish(prepared, committed + 7, int(number))
    whole = np.asarray(open_group(folder / "draws.zarr")["posterior/mean"][...])
    np.testing.assert_array_equal(cut, whole)


def _finish(prepared: Any, draws: int, seed: int) -> None:
    job = prepared("sample", draws, seed=seed)
    said, _ = job.communicate()
    assert job.returncode == 0, said


def test_a_second_writer_is_refused_with_the_owners_name(prepared: Any) -> None:
    known = set(prepared.results.glob("stopped/chains/*/group-000"))
    first = prepared("sample", ENDLESS, seed=99)
    folder = _begun(prepared.results, known, first)
    owner = json.loads((folder / "writer.json").read_text())["pid"]
    second = prepared("sample", 10, seed=99)
    said, _ = second.communicate()
    assert second.returncode == 5, said
    assert f"{folder}: is being written by process {owner} of " in said
    assert f"remedy: wait until it has finished, or stop it: kill {owner} on " in said
    assert first.poll() is None, "the first goes on"
    first.kill()
    first.communicate()
    # A stale lock: its owner is dead, and the next one says whose it takes over.
    third = prepared("sample", 10, seed=99)
    said, _ = third.communicate()
    assert third.returncode == 0, said
    assert f"taking over the lock of process {owner} of " in said


def test_a_job_without_time_to_wait_leaves_at_its_last_commit(prepared: Any) -> None:
    """What runs on the devices is not waited for."""
    known = set(prepared.results.glob("stopped/chains/*/group-000"))
    job = prepared("sample", ENDLESS, seed=98, grace_seconds=0)
    folder = _begun(prepared.results, known, job)
    job.terminate()
    said, _ = job.communicate(timeout=30)
    assert job.returncode == 75, said
    assert "asked to stop by SIGTERM; committed: " in said
    assert not (folder / "writer.json").exists()
