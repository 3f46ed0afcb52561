"""A loopback cluster for the whole session, and a workspace whose experiment is small."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopback import Cluster
from workspace import Workspace, for_user, keep_programs, lay_out

OFTEN = Path(__file__).with_name("often.py")

FILMS = {
    "title": "Films",
    "data": {"source": "films", "num_users": 12, "num_films": 10, "width": 1, "held_out_fraction": 0.2},
    "model": {"name": "matrix_factorization", "width": 1},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 2, "initial_step_size": 0.1},
    "sampling": {"mode": "independent", "chains": 4, "chain_groups": 2, "warmup": 8, "draws": 16, "segment_seconds": 1e-6},
    # One device for each program, here and on a node: the mesh is part of what decides the draws.
    "compute": {"mesh": {"chain": 1, "data": 1}},
    "recommendation": {"num_films": 3, "top": 2, "cutoff": 3},
}  # fmt: skip

SITE = {
    "account": "tests",
    "cpu": {"partition": "cpu", "cores": 1, "max_memory_mb": 4000, "max_minutes": 60},
    "gpu": {"partition": "gpu", "model": "h100", "cores": 1, "max_memory_mb": 4000, "max_minutes": 60, "nodes": 2},
    "stop_seconds": 30,
}


@pytest.fixture(scope="session", params=["accounting", "queue"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a running cluster, with a database of its jobs or without; it is stopped, also when it does not start."""
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    started = Cluster(tmp_path_factory.mktemp("loopback"), request.param == "accounting")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def site() -> dict[str, Any]:
    """Return what the cluster is like."""
    return SITE


@pytest.fixture(scope="session")
def make(user_environment: dict[str, str]) -> Callable[[Path], Workspace]:
    """Return a function that lays out a workspace for the cluster."""

    def lay(root: Path) -> Workspace:
        # What is compared is the same however well it is compiled.
        environment = {**for_user(user_environment), "XLA_FLAGS": "--xla_backend_optimization_level=0"}
        workspace = lay_out(root, environment, {"films": FILMS})
        (root / "profiles" / "site.yaml").write_text(yaml.safe_dump(SITE))
        return workspace

    return lay


class Submission:
    """A run of Snakemake in the background, with a profile or without one.

    Args:
        workspace: where.
        log: gets what it says.
        arguments: of Snakemake.
    """

    def __init__(self, workspace: Workspace, log: Path, *arguments: str) -> None:
        self.workspace, self.log = workspace, log
        command = [sys.executable, str(OFTEN), "--latency-wait", "5", *arguments]
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=workspace.root, env=workspace.environment, stdout=out, stderr=out, start_new_session=True
            )

    def said(self) -> str:
        """The end of what it said."""
        return self.log.read_text(errors="replace")[-8000:]

    def finish(self, seconds: float = 900) -> None:
        """Wait until all is done."""
        assert self.process.wait(seconds) == 0, self.said()
        keep_programs(self.workspace.results)

    def end(self) -> None:
        """End it and the processes that it started here, if they have not ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def submit() -> Iterator[Callable[..., Submission]]:
    """Return a function that starts Snakemake in the background; what has not ended with the tests is ended."""
    started: list[Submission] = []

    def start(workspace: Workspace, log: Path, *arguments: str) -> Submission:
        started.append(Submission(workspace, log, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.end()
