"""Two processes run one program: the draws of one process, each writes its own rows, and none outlives the other."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bayesmesh.config.experiment import experiment_class
from bayesmesh.files import write_json
from bayesmesh.sampling.density.processes import LEAVE_SECONDS
from bayesmesh.store.layout import process_folder
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import make_job
from bayesmesh.workflow.stages import fetch, shard
from recording import record_as
from workspace import bring_programs, keep_programs
from zygote import zygote

ROOT = Path(__file__).resolve().parents[2]

NUM_ROWS, WARMUP, DRAWS, SLICE, SEGMENT = 13, 8, 64, 4, 8
"""13 rows over two devices: seven and six, and one of padding."""

COMPARED = 32
"""Draws that are compared between meshes: with the warmup 40 iterations, after which rounding has not yet grown."""

EXPERIMENTS: dict[str, dict[str, Any]] = {
    "films": {
        "data": {"source": "films", "num_users": NUM_ROWS, "num_films": 5, "width": 1},
        "model": {"name": "matrix_factorization", "width": 1},
        "kernel": {"name": "hmc", "num_leapfrog_steps": 3, "initial_step_size": 0.1},
    },
    "gaussian": {
        "data": {"source": "gaussian", "num_rows": NUM_ROWS, "dimension": 2},
        "model": {"name": "gaussian"},
        "kernel": {"name": "chees", "max_leapfrog_steps": 4},
    },
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment whose data are there and whose lengths are fixed, as the compile stage would leave it."""

    name: str
    settings: Any
    results: Path
    environment: Mapping[str, str]

    def spec(self, stage: str) -> Any:
        return make_job(stage, self.name, self.settings, str(self.results))

    @property
    def layout(self) -> Any:
        return self.spec("sample").layout

    def start(self, stage: str, processes: int = 1, **variables: str) -> subprocess.Popen[str]:
        """Start a stage, and nothing of it if it is not ended."""
        options = ["--processes", f"1x{processes}"] if stage == "sample" else []
        # What starts processes of its own, and looks for them, is one itself.
        anew = [sys.executable, "-m", "bayesmesh.cli"]
        command = [str(zygote().bin / "bayesmesh")] if processes == 1 else anew
        file = self.results / f"{stage}.json"
        file.write_text(self.spec(stage).canonical())
        return subprocess.Popen(
            [*command, stage, "--spec", str(file), "--cores", "2", *options],
            env={**self.environment, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, stage: str, processes: int = 1, **variables: str) -> tuple[int, str]:
        running = self.start(stage, processes, **variables)
        said, _ = running.communicate(timeout=300)
        keep_programs(self.results)
        return running.returncode, said

    def folder(self, process: int = 0) -> Path:
        (group,) = self.layout.folder.glob("chains/*/group-000")
        return process_folder(group, process)

    def markers(self, process: int = 0) -> list[str]:
        name = process_folder(Path("group-000"), process).name
        found = self.layout.folder.glob(f"chains/*/{name}/commits/sample-*.json")
        return sorted(path.name for path in found)

    def posterior(self) -> dict[str, np.ndarray]:
        root = zarr.open_group(str(self.layout.posterior), mode="r")
        return {
            f"{group}/{name}": np.asarray(array)
            for group in ("posterior", "sample_stats", "warmup_sample_stats")
            for name, array in root[group].arrays()
        }


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Callable[..., Experiment]:
    """Return a function of (name, number of processes) that lays an experiment out."""

    def make(name: str, processes: int = 2) -> Experiment:
        sampling = {"mode": "sharded", "chains": 4, "warmup": WARMUP, "draws": DRAWS, "seed": 1}
        compute = {"processes": processes, "dtype": "float64", "platform": "cpu"}
        whole = {"title": name, "sampling": sampling, "compute": compute, **EXPERIMENTS[name]}
        results = tmp_path_factory.mktemp(name)
        # What is compared is the same however well it is compiled.
        variables = {
            **environment,
            "PYTHONPATH": str(ROOT / "src"),
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        }
        experiment = Experiment(name, experiment_class().model_validate(whole), results, variables)
        for stage in (fetch, shard):
            spec = experiment.spec(stage.__name__.rpartition(".")[2])
            stage.run(spec, Ledger(results / "ledger.json", "data"), component_of(spec, "source"))
        bring_programs(results)
        write_json(experiment.layout.audit, {"slice_draws": SLICE, "segment_draws": SEGMENT})
        for job in (experiment.spec(stage) for stage in ("fetch", "shard", "compile")):
            record_as(results, job.owner, job.name, job.outputs)
        return experiment

    return make


@pytest.fixture(scope="module")
def finished(make: Callable[..., Experiment]) -> Callable[[int], Experiment]:
    """Return a function of the number of processes that gives films which ran undisturbed, to their posterior."""
    made: dict[int, Experiment] = {}

    def finish(processes: int) -> Experiment:
        if processes not in made:
            experiment = make("films", processes)
            for stage in ("sample", "assemble"):
                code, said = experiment.run(stage, processes)
                assert code == 0, said[-4000:]
            made[processes] = experiment
        return made[processes]

    return finish


@pytest.mark.nightly
def test_two_processes_of_one_device_draw_as_one_of_two(finished: Callable[[int], Experiment]) -> None:
    one, two = finished(1).posterior(), finished(2).posterior()
    assert one.keys() == two.keys()
    for key, values in one.items():
        assert two[key].shape == values.shape
        kept = np.s_[:, :COMPARED] if values.ndim > 1 else np.s_[:]
        np.testing.assert_allclose(two[key][kept], values[kept], rtol=1e-10, atol=1e-10, err_msg=key)
    moving = two["posterior/user_biases"]
    assert moving.shape == (4, DRAWS, NUM_ROWS)
    assert len(np.unique(moving[0, :, 0])) > DRAWS / 4


def test_each_process_writes_its_own_rows_and_the_first_alone_what_all_have(
    finished: Callable[[int], Experiment],
) -> None:
    films = finished(2)
    first, second = (zarr.open_group(str(films.folder(p) / "draws.zarr"), mode="r") for p in (0, 1))
    assert {n for n, _ in second["posterior"].arrays()} == {"user_biases", "user_embeddings"}
    assert [n for n, _ in second.groups()] == ["posterior"]
    joined = films.posterior()["posterior/user_biases"]
    np.testing.assert_array_equal(np.asarray(first["posterior/user_biases"]), joined[:, :, :7])
    np.testing.assert_array_equal(np.asarray(second["posterior/user_biases"])[:, :, :6], joined[:, :, 7:])
    assert not np.asarray(second["posterior/user_biases"])[:, :, 6:].any()


def test_what_both_hold_is_the_same_bits(finished: Callable[[int], Experiment]) -> None:
    experiment = finished(2)
    paths = [sorted((experiment.folder(p) / "checkpoints").glob("sample-*.npz")) for p in (0, 1)]
    assert [p.name for p in paths[0]] == [p.name for p in paths[1]]
    same = 0
    with np.load(paths[0][-1]) as first, np.load(paths[1][-1]) as second:
        assert first.files == second.files
        for leaf in first.files:
            # Each process holds its own entries of the local part.
            if not leaf.endswith(".local"):
                np.testing.assert_array_equal(first[leaf], second[leaf], err_msg=leaf)
                same += 1
    assert same > 5


def _child(parent: subprocess.Popen[str], index: int) -> int:
    """Return the process that is number `index` of those that the parent started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_child = (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(parent.pid)
            variables = (folder / "environ").read_bytes().split(b"\0")
            if is_child and f"JAX_PROCESS_ID={index}".encode() in variables:
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError(f"no process {index}")


def _wait_for_commits(experiment: Experiment, running: subprocess.Popen[str], more: int) -> None:
    wanted = len(experiment.markers(1)) + more
    while len(experiment.markers(1)) < wanted:
        assert running.poll() is None, running.communicate()[0][-4000:]
        time.sleep(0.002)


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(
    finished: Callable[[int], Experiment], make: Callable[..., Experiment]
) -> None:
    films = make("films")
    running = films.start("sample", 2)
    _wait_for_commits(films, running, 2)
    second = _child(running, 1)
    begun = time.monotonic()
    os.kill(second, signal.SIGKILL)
    said, _ = running.communicate(timeout=300)
    assert running.returncode not in (0, 75), said
    assert "process 0 of 2: a device or another process was lost" in said
    assert time.monotonic() - begun < LEAVE_SECONDS, "nobody waits for one who is dead"
    assert len(films.markers()) < DRAWS / SEGMENT, "it was to be killed in the middle"

    for stage in ("sample", "assemble"):
        code, said = films.run(stage, 2)
        assert code == 0, said[-4000:]
    expected, found = finished(2).posterior(), films.posterior()
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)


def test_all_stop_together(finished: Callable[[int], Experiment], make: Callable[..., Experiment]) -> None:
    films = make("films")
    running = films.start("sample", 2)
    _wait_for_commits(films, running, 2)
    os.kill(_child(running, 1), signal.SIGTERM)
    said, _ = running.communicate(timeout=300)
    assert running.returncode == 75, said
    assert said.count("asked to stop by SIGTERM") == 2, "one was asked, and both say so"
    assert films.markers(0) == films.markers(1)
    assert len(films.markers()) < DRAWS / SEGMENT, "it was to be stopped in the middle"
    assert not films.layout.sampled("group-000").exists()


@pytest.mark.parametrize(
    ("processes", "variables", "said"),
    [
        (
            1,
            {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"},
            "is 1, but there are 2",
        ),
        (2, {}, "is 2, but there are 1"),
    ],
)
def test_another_number_of_processes_is_refused_before_anything_is_written(
    make: Callable[..., Experiment], processes: int, variables: dict[str, str], said: str
) -> None:
    experiment = make("gaussian", processes)
    code, found = experiment.run("sample", 1, **variables)
    assert code == 2, found
    assert f"experiment 'gaussian': key 'compute.processes': {said} processes" in found
    assert not list(experiment.layout.folder.glob("chains/*"))
