"""A copy of the workflow with two tiny experiments, run once from end to end and shared by all workers of pytest."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

DIGITS = {
    "title": "Digits & <b>tags</b>",
    "data": {"source": "digits", "test_fraction": 0.8},
    "model": {"name": "softmax_regression"},
    "kernel": {"name": "chees", "max_leapfrog_steps": 8},
    "sampling": {"chains": 4, "warmup": 20, "draws": 20, "seed": 1},
    # No draws can pass it: a gate that fails must not fail the run.
    "gates": {"r_hat": 0.5},
    "averaging": {},
}

FILMS = {
    "title": "Films",
    "data": {"source": "films", "num_users": 12, "num_films": 10, "width": 1, "held_out_fraction": 0.2},
    "model": {"name": "matrix_factorization", "width": 1},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 2, "initial_step_size": 0.1},
    # The shortest segments, of one draw: a run of many draws is slow enough to be killed in the middle.
    "sampling": {
        "mode": "independent",
        "chains": 4,
        "chain_groups": 2,
        "warmup": 8,
        "draws": 8,
        "segment_seconds": 1e-6,
    },
    "recommendation": {"num_films": 3, "top": 2, "cutoff": 3},
}


@dataclasses.dataclass(frozen=True)
class Workspace:
    """A folder as a user has it: workflow, configuration, source and results."""

    root: Path
    environment: Mapping[str, str]

    @property
    def results(self) -> Path:
        return self.root / "results"

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in the folder."""
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.root, env={**self.environment, **variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def snakemake(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Snakemake."""
        return self.run("snakemake", *arguments, **variables)

    def planned(self, *arguments: str) -> list[str]:
        """Return the messages of the jobs that a dry run lists, sorted, without digests in names of data."""
        done = self.snakemake("-n", "--cores", "2", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        jobs = re.findall(r"^Job \d+: (.*)$", done.stdout + done.stderr, re.M)
        return sorted(re.sub(r"-[0-9a-f]{8}\b", "", job) for job in jobs)

    def experiment(self, name: str) -> Path:
        return self.root / "config" / "experiments" / f"{name}.yaml"

    def set(self, name: str, key: str, value: Any) -> None:
        """Set one dotted key of an experiment."""
        whole = yaml.safe_load(self.experiment(name).read_text())
        *blocks, last = key.split(".")
        block = whole
        for part in blocks:
            block = block.setdefault(part, {})
        block[last] = value
        self.experiment(name).write_text(yaml.safe_dump(whole))

    @contextlib.contextmanager
    def changed(self, path: Path, text: str) -> Iterator[None]:
        """Let a file be another for a while."""
        before = path.read_text() if path.exists() else None
        path.write_text(text)
        try:
            yield
        finally:
            path.unlink() if before is None else path.write_text(before)

    def copy(self, root: Path) -> Workspace:
        """Return a copy with the same times of files."""
        shutil.copytree(self.root, root, symlinks=True)
        return Workspace(root, {**self.environment, "PYTHONPATH": str(root / "src")})


def _lay_out(root: Path, environment: Mapping[str, str]) -> Workspace:
    for part in ("workflow", "profiles", "envs"):
        shutil.copytree(ROOT / part, root / part)
    shutil.copy(ROOT / "Snakefile", root)
    shutil.copytree(
        ROOT / "src" / "bayesmesh", root / "src" / "bayesmesh", ignore=shutil.ignore_patterns("__pycache__")
    )
    (root / "config" / "experiments").mkdir(parents=True)
    (root / "config" / "config.yaml").write_text("experiments: [digits, films]\n")
    for name, experiment in (("digits", DIGITS), ("films", FILMS)):
        (root / "config" / "experiments" / f"{name}.yaml").write_text(yaml.safe_dump(experiment))
    return Workspace(root, {**environment, "PYTHONPATH": str(root / "src")})


@pytest.fixture(scope="session")
def environment(user_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a user without mirror."""
    kept = {k: v for k, v in user_environment.items() if not k.startswith(("BAYESMESH_", "PYTHON", "XLA_", "PYTEST_"))}
    return {**kept, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


@pytest.fixture(scope="session")
def fresh(environment: dict[str, str]) -> Callable[[Path], Workspace]:
    """Return a function that lays out a workspace in which nothing has run yet."""
    return lambda root: _lay_out(root, environment)


@pytest.fixture(scope="session")
def completed(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Workspace:
    """Return a workspace in which plain `snakemake` has run; nobody may change it.

    Workers share it: who comes first runs, the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    root, outcome = base / "completed", base / "completed.outcome"
    workspace = Workspace(root, {**environment, "PYTHONPATH": str(root / "src")})
    with (base / "completed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not outcome.exists():
            outcome.write_text("it did not end\n")
            _lay_out(root, environment)
            # The source under test is the copy, though the environment has an editable installation.
            which = workspace.run("bayesmesh.cli", "--help", PYTHONVERBOSE="").returncode
            where = subprocess.run(
                [sys.executable, "-c", "import bayesmesh; print(bayesmesh.__file__)"],
                cwd=root, env=workspace.environment, capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            assert which == 0
            assert where.startswith(str(root))
            done = workspace.snakemake("--cores", "2")
            outcome.write_text("" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stderr[-6000:]}")
    if outcome.read_text():
        pytest.fail(f"the workflow did not run from end to end: {outcome.read_text()}")
    return workspace


@pytest.fixture(scope="module")
def workspace(completed: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Return a copy of the completed workspace for the tests of one module, who leave it as they find it."""
    return completed.copy(tmp_path_factory.mktemp("workspace") / "copy")
