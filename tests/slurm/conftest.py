"""A loopback cluster for the whole session, and a workspace whose experiment is small."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopback import Cluster
from workspace import Workspace, for_user, lay_out

QUICK = (
    "--slurm-init-seconds-before-status-checks",
    "2",
    "--seconds-between-status-checks",
    "1",
    "--latency-wait",
    "5",
)
"""For a scheduler that does not mind being asked often."""

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
def quick() -> tuple[str, ...]:
    """Return options that look often whether a job is done."""
    return QUICK


@pytest.fixture(scope="session")
def make(user_environment: dict[str, str]) -> Callable[[Path], Workspace]:
    """Return a function that lays out a workspace for the cluster."""

    def lay(root: Path) -> Workspace:
        workspace = lay_out(root, for_user(user_environment), {"films": FILMS})
        (root / "profiles" / "site.yaml").write_text(yaml.safe_dump(SITE))
        return workspace

    return lay
