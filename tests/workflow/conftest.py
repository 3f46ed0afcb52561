"""A copy of the workflow with two tiny experiments, run once from end to end and shared by all workers of pytest."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workspace import EXPERIMENTS, Workspace, for_user, lay_out


@pytest.fixture(scope="session")
def environment(user_environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a user without mirror."""
    return for_user(user_environment)


@pytest.fixture(scope="session")
def fresh(environment: dict[str, str]) -> Callable[[Path], Workspace]:
    """Return a function that lays out a workspace in which nothing has run yet."""
    return lambda root: lay_out(root, environment, EXPERIMENTS)


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
            lay_out(root, environment, EXPERIMENTS)
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
