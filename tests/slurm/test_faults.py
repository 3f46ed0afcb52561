"""Sampling that is preempted, told to stop, out of time, and loses its node, all in one run: the same bytes in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayesmesh.status.progress import read_group
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.markers import marker_names
from loopback import NODES, Cluster
from workspace import Workspace, hashes

MANIFEST = "results/films/chains/group-000.json"
DRAWS = 150
LEAPFROG_STEPS = 100
PATIENCE_SECONDS = 400.0
"""Two starts of Snakemake and one of JAX on a busy machine; a preempted job waits 16 s besides."""


def prepare(workspace: Workspace) -> Workspace:
    """Make it one chain group of segments of one draw, slow enough to be caught in the middle."""
    for key, value in (("chain_groups", 1), ("draws", DRAWS), ("grace_seconds", 5.0)):
        workspace.set("films", f"sampling.{key}", value)
    workspace.set("films", "kernel.num_leapfrog_steps", LEAPFROG_STEPS)
    return workspace


@pytest.fixture(scope="module")
def undisturbed(make: Callable[[Path], Workspace], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = prepare(make(tmp_path_factory.mktemp("undisturbed") / "copy"))
    done = workspace.snakemake("--cores", "1", MANIFEST)
    assert done.returncode == 0, done.stderr[-4000:]
    return workspace


class Run:
    """A run of Snakemake on the cluster, and its sampling job."""

    def __init__(self, cluster: Cluster, workspace: Workspace, log: Path, quick: tuple[str, ...]) -> None:
        self.cluster, self.workspace, self.log = cluster, workspace, log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "snakemake", "--profile", "profiles/slurm-cpu", *quick, "--", MANIFEST],
                cwd=workspace.root, env=workspace.environment, stdout=out, stderr=out,
            )  # fmt: skip

    def job(self) -> dict[str, str] | None:
        """The newest sampling job of the workspace."""
        mine = [j for j in self.cluster.jobs() if j["folder"] == str(self.workspace.root) and "sample" in j["comment"]]
        return mine[-1] if mine else None

    def group(self) -> Path | None:
        """Folder of the chains, once there are any."""
        return next(iter(self.workspace.results.glob("films/chains/*/group-000")), None)

    def draws(self) -> int:
        """Draws that are committed."""
        folder = self.group()
        if folder is None or not any(name.startswith("sample") for name in marker_names(folder)):
            return 0
        return read_group(folder).done

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            said = self.log.read_text()[-4000:]
            assert self.process.poll() is None, f"Snakemake has ended while waiting until {what}:\n{said}"
            assert time.monotonic() < end, f"waited in vain until {what}; {self.job()}\n{said}"
            time.sleep(0.1)

    def catch(self, further: int = 10) -> tuple[dict[str, str], int]:
        """Wait until a job has committed further draws and halt its sampler; returns the job and the process.

        Halted, because a scheduler takes its time; a sampler that went on would have finished before.
        """
        first = self.draws()
        self.wait_for(f"{further} further draws", lambda: self.draws() >= first + further)
        folder = self.group()
        assert folder is not None
        process = int(json.loads((folder / LOCK_NAME).read_text())["pid"])
        os.kill(process, signal.SIGSTOP)
        assert self.draws() < DRAWS, "the draws are too few: sampling ended before it could be disturbed"
        job = self.job()
        assert job is not None
        assert job["state"] == "RUNNING"
        return job, process

    def wait_for_end_of(self, job: dict[str, str]) -> None:
        """Wait until a job no longer runs, or runs again."""
        self.wait_for(
            f"job {job['id']} is away",
            lambda: (self.job() or {}).get("state") != "RUNNING" or self.job()["id"] != job["id"],
        )


def preempt(cluster: Cluster, job: dict[str, str], process: int) -> None:
    done = cluster.ask("sbatch", "-p", "cpu", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 2")
    assert done.returncode == 0, done.stderr


def stop(cluster: Cluster, job: dict[str, str], process: int) -> None:
    assert cluster.ask("scancel", "--signal=TERM", job["id"]).returncode == 0
    # The scheduler itself does this when it ends a job.
    os.kill(process, signal.SIGCONT)


def run_out_of_time(cluster: Cluster, job: dict[str, str], process: int) -> None:
    assert cluster.ask("scontrol", "update", f"jobid={job['id']}", "timelimit=0:01").returncode == 0


def lose_node(cluster: Cluster, job: dict[str, str], process: int) -> None:
    node = job["nodes"]
    assert node in NODES
    assert cluster.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test").returncode == 0


@pytest.fixture
def nodes_up(cluster: Cluster) -> Iterator[None]:
    """Bring back the nodes that a test takes down."""
    yield
    for node in NODES:
        cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")


@pytest.mark.parametrize("cluster", ["queue"], indirect=True)
@pytest.mark.usefixtures("nodes_up")
def test_a_run_that_is_disturbed_in_every_way_gives_the_same_bytes(
    cluster: Cluster,
    make: Callable[[Path], Workspace],
    site: dict[str, Any],
    quick: tuple[str, ...],
    undisturbed: Workspace,
    tmp_path: Path,
) -> None:
    workspace = prepare(make(tmp_path / "copy"))
    # The partition whose jobs make way; no account, for this cluster keeps none.
    spare = {**site, "account": None, "cpu": {**site["cpu"], "partition": "spare"}}
    (workspace.root / "profiles" / "site.yaml").write_text(yaml.safe_dump(spare))
    run = Run(cluster, workspace, tmp_path / "snakemake.log", quick)
    committed = []
    try:
        for disturb in (preempt, stop, run_out_of_time, lose_node):
            job, process = run.catch()
            committed.append(run.draws())
            disturb(cluster, job, process)
            run.wait_for_end_of(job)
        assert run.process.wait(PATIENCE_SECONDS) == 0, run.log.read_text()[-6000:]
    finally:
        run.process.kill()
        run.process.wait()

    (done,), (expected,) = (w.results.glob("films/chains/*/group-000") for w in (workspace, undisturbed))
    assert done.parent.name == expected.parent.name, "another identity"
    assert hashes(done / "draws.zarr") == hashes(expected / "draws.zarr")
    assert json.loads((workspace.root / MANIFEST).read_text())["committed_draws"] == DRAWS

    # Nothing that was committed was made again: every start goes on where the one before it ended.
    rows = [
        json.loads(line)
        for line in (workspace.results / "films/ledger/sample-group-000.jsonl").read_text().splitlines()
    ]
    resumed = [int(row["detail"].split()[1]) for row in rows if row["phase"] == "resume"]
    assert len(resumed) >= len(committed) - 1, "the job whose node was lost could not write its ledger"
    assert resumed == sorted(resumed)
    assert all(any(start >= before for start in resumed) for before in committed)
    gradients = sum(row["gradients"] for row in rows if row["phase"] == "sample")
    assert gradients <= DRAWS * LEAPFROG_STEPS * 4
