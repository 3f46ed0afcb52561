"""A job that is asked to stop commits what it has, says so with exit code 75, and goes on later as if nothing were."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.store.arrays import open_group
from bayesmesh.workflow.jobs import make_job
from zygote import zygote

ENDLESS = 50_000_000

CALLBACK = """
import time
import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp
from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Model

tfd = tfp.distributions


class Options(Settings):
    pass


def wait(mean):
    time.sleep(0.05)
    return np.zeros_like(mean)


class Mine(Model):
    pretty_name = "Mine"
    offers = ()

    def prior(self, data_spec):
        zero = jnp.zeros((), data_spec.dtype)
        return tfd.JointDistributionNamed({"mean": tfd.Sample(tfd.Normal(zero, zero + 1), (2,))})

    def log_likelihood(self, latents, rows):
        mean = jax.lax.stop_gradient(latents["mean"])
        waited = jax.pure_callback(wait, jax.ShapeDtypeStruct((2,), mean.dtype), mean, vmap_method="expand_dims")
        return self.predict(latents, rows).log_prob(rows["x"]) + waited.sum()

    def predict(self, latents, inputs):
        mean = jnp.broadcast_to(latents["mean"], inputs["x"].shape)
        return tfd.Independent(tfd.Normal(mean, jnp.ones((), mean.dtype)), 1)

    def outcome(self, rows):
        return rows["x"]

    def summaries(self, latents, rows):
        return {"mean": latents["mean"]}
"""


def _spec(stage: str, results: Path, draws: int, **sampling: Any) -> str:
    config = {
        "title": "Asked to stop",
        "data": {"source": "gaussian", "num_rows": 20},
        "model": {"name": "gaussian"},
        "kernel": {"name": "hmc", "num_leapfrog_steps": 3},
        "sampling": {"chains": 2, "warmup": 10, "draws": draws, **sampling},
    }
    return make_job(stage, "stopped", experiment_class().model_validate(config), str(results)).canonical()


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
    assert "rerun the command to resume" in said
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


def test_a_model_with_a_host_callback_stops_too(tmp_path: Path, user_environment: Mapping[str, str]) -> None:
    """Its program returns from a call only at the end, and no cost analysis sees the time of the host."""
    (tmp_path / "slow.py").write_text(CALLBACK)
    config = {
        "title": "Slow",
        "data": {"source": "gaussian", "num_rows": 20},
        "model": {"name": "slow:Mine"},
        "kernel": {"name": "hmc", "num_leapfrog_steps": 2},
        "sampling": {"chains": 2, "warmup": 1000, "draws": 1000, "initial": {"method": "zero"}},
    }
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [slow]\n")
    (tmp_path / "config" / "experiments" / "slow.yaml").write_text(json.dumps(config))

    def start(stage: str) -> subprocess.Popen[str]:
        command = [str(zygote().bin / "bayesmesh"), stage, "--experiment", "slow"]
        return subprocess.Popen(
            command, cwd=tmp_path, env=user_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    for stage in ("fetch", "shard", "compile"):
        job = start(stage)
        said, _ = job.communicate()
        assert job.returncode == 0, said
    job = start("sample")
    while not (locks := [*tmp_path.glob("results/slow/chains/*/group-000/writer.json")]) and job.poll() is None:
        time.sleep(0.05)
    time.sleep(3)
    asked = time.monotonic()
    job.terminate()
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 75, said
    assert time.monotonic() - asked < 10
    assert re.search(r"asked to stop by SIGTERM; committed: warmup [1-9]\d* of warmup 1000", said), said
    assert not locks[0].exists()
