"""Sampling that is disturbed in every way a cluster knows: the same bytes in the end, and nothing is done twice.

Several runs at the same time, each disturbed several times in a row, because a job spends more time on its start than
on this work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayesmesh.operations.status.chain_progress import read_group
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.markers import marker_names
from loopback import Cluster
from workspace import Workspace, hashes

MANIFEST = "results/films/chains/group-000.json"
DRAWS = 150
LEAPFROG_STEPS = 100
PATIENCE_SECONDS = 240.0
"""Two starts of Snakemake and one of JAX on a busy machine; a preempted job waits some seconds besides."""

PARTITIONS = {"first": "spare", "second": "fragile", "third": "cpu", "fourth": "cpu"}
"""Run -> where its jobs are: what happens to one is not to happen to the others."""

TAKES_MEMORY = '''\
"""When it is asked to, a process takes more memory than its job may have, and then does nothing more."""
import os, signal, sys, threading, time

def take():
    while not os.path.exists("take-memory"):
        time.sleep(0.02)
    os.rename("take-memory", "taken")
    held = b"x" * (5 * 2**29)
    os.kill(os.getpid(), signal.SIGSTOP)

if len(sys.orig_argv) > 2 and sys.orig_argv[1].endswith("/bayesmesh") and sys.orig_argv[2] == "sample":
    threading.Thread(target=take, daemon=True).start()
'''
"""Python runs it at its start."""


class Run:
    """One experiment on the cluster: its Snakemake, its sampling job, and what is committed.

    Args:
        cluster: that it runs on.
        workspace: of its own.
        submit: starts Snakemake.
    """

    def __init__(self, cluster: Cluster, workspace: Workspace, submit: Callable[..., Any]) -> None:
        self.cluster, self.workspace, self._submit = cluster, workspace, submit
        self.log = workspace.root / "snakemake.log"
        self.start()

    def start(self) -> None:
        self.snakemake = self._submit(self.workspace, self.log, "--profile", "profiles/slurm-cpu", "--", MANIFEST)

    def job(self) -> dict[str, str] | None:
        """The newest sampling job."""
        mine = [j for j in self.cluster.jobs() if j["folder"] == str(self.workspace.root) and "sample" in j["comment"]]
        return mine[-1] if mine else None

    def group(self) -> Path | None:
        """Folder of the chains, once there are any."""
        return next(iter(self.workspace.results.glob("films/chains/*/group-000")), None)

    def markers(self) -> dict[str, int]:
        """Commit -> when it was made, in nanoseconds."""
        folder = self.group()
        if folder is None:
            return {}
        made = {}
        for name in marker_names(folder):
            # Gone in the meantime: newer ones stand for it.
            with contextlib.suppress(FileNotFoundError):
                made[name] = (folder / "commits" / name).stat().st_mtime_ns
        return made

    def draws(self) -> int:
        """Draws that are committed."""
        folder = self.group()
        if folder is None or not any(name.startswith("sample") for name in marker_names(folder)):
            return 0
        return read_group(folder).done

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert self.snakemake.process.poll() is None, (
                f"it has ended while waiting for {what}:\n{self.snakemake.said()}"
            )
            assert time.monotonic() < end, f"waited in vain for {what}; {self.job()}\n{self.snakemake.said()}"
            time.sleep(0.1)

    def catch(self, further: int = 10) -> Event:
        """Wait until a job has committed further draws and halt its sampler.

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
        return Event(self, job, process, self.draws(), self.markers())

    def finish(self) -> None:
        self.snakemake.finish(PATIENCE_SECONDS)


@dataclasses.dataclass
class Event:
    """A sampler that was halted in the middle, to be disturbed.

    Attributes:
        run: whose.
        job: in which job.
        process: its number.
        draws: draws that are committed.
        markers: commit -> when it was made.
        kind: what then happened.
    """

    run: Run
    job: dict[str, str]
    process: int
    draws: int
    markers: dict[str, int]
    kind: str = ""

    def ask(self, *command: str) -> None:
        done = self.run.cluster.ask(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    def wait_for_end(self) -> None:
        """Wait until the job no longer runs, or has been followed by another."""

        def is_over() -> bool:
            now = self.run.job()
            return now is None or now["id"] != self.job["id"] or now["state"] != "RUNNING"

        self.run.wait_for(f"job {self.job['id']} is away", is_over)


def preempt(event: Event) -> None:
    event.ask("sbatch", "-p", "urgent", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")


def stop(event: Event) -> None:
    event.ask("scancel", "--signal=TERM", event.job["id"])
    # The scheduler itself does this when it ends a job.
    os.kill(event.process, signal.SIGCONT)


def cancel(event: Event) -> None:
    event.ask("scancel", event.job["id"])


def run_out_of_time(event: Event) -> None:
    event.ask("scontrol", "update", f"jobid={event.job['id']}", "timelimit=0:01")


def take_memory(event: Event) -> None:
    (event.run.workspace.root / "take-memory").touch()
    os.kill(event.process, signal.SIGCONT)


def lose_node(event: Event) -> None:
    # It does not come back; the partition has another one.
    event.ask("scontrol", "update", f"nodename={event.job['nodes']}", "state=down", "reason=test")


def lose_main_process(event: Event) -> None:
    """The job goes on, and a second one meets it."""
    run = event.run
    run.snakemake.end()
    unlocked = run.workspace.snakemake("--unlock")
    assert unlocked.returncode == 0, unlocked.stderr
    run.start()
    run.wait_for("a second job that is refused", lambda: "is being written by process" in run.snakemake.said())
    os.kill(event.process, signal.SIGCONT)


def lose_scheduler(event: Event) -> None:
    """The controller is deaf while the job goes on and ends."""
    controller = event.run.cluster.pid("slurmctld")
    assert controller is not None
    os.kill(controller, signal.SIGSTOP)
    os.kill(event.process, signal.SIGCONT)
    try:
        event.run.wait_for("the last draw", (event.run.workspace.root / MANIFEST).exists)
        time.sleep(5)
    finally:
        os.kill(controller, signal.SIGCONT)


DISTURBANCES: dict[str, tuple[Callable[[Event], None], ...]] = {
    "first": (stop, preempt),
    "second": (take_memory, lose_node),
    "third": (cancel, run_out_of_time, lose_main_process),
    "fourth": (lose_scheduler,),
}
"""Run -> what happens to it."""

LEAVES_THE_JOB = (lose_main_process, lose_scheduler)
"""The job goes on."""


def prepare(workspace: Workspace) -> None:
    """Make it one chain group of segments of one draw, slow enough to be caught in the middle."""
    for key, value in (("chain_groups", 1), ("draws", DRAWS), ("grace_seconds", 5.0)):
        workspace.set("films", f"sampling.{key}", value)
    workspace.set("films", "kernel.num_leapfrog_steps", LEAPFROG_STEPS)


def disturb(run: Run, disturbances: Sequence[Callable[[Event], None]], others_are_done: threading.Event) -> list[Event]:
    """Disturb a run several times, and let it end."""
    events = []
    for how in disturbances:
        event = run.catch()
        event.kind = how.__name__
        events.append(event)
        if how is lose_scheduler:
            # It is everybody's.
            others_are_done.wait(2 * PATIENCE_SECONDS)
        how(event)
        if how not in LEAVES_THE_JOB:
            event.wait_for_end()
    run.finish()
    return events


@pytest.fixture(scope="module")
def undisturbed(make: Callable[[Path], Workspace], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = make(tmp_path_factory.mktemp("undisturbed") / "copy")
    prepare(workspace)
    done = workspace.snakemake("--cores", "1", MANIFEST)
    assert done.returncode == 0, done.stderr[-4000:]
    return workspace


@pytest.fixture(scope="module")
def events(
    cluster: Cluster,
    undisturbed: Workspace,
    site: dict[str, Any],
    submit: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, list[Event]]]:
    """Return what happened to each of the runs, all of which have ended."""
    folder = tmp_path_factory.mktemp("disturbed")
    runs = {}
    for name, partition in PARTITIONS.items():
        workspace = undisturbed.copy(folder / name)
        # What was compiled is there, and no draw.
        shutil.rmtree(workspace.results / "films" / "chains")
        shutil.rmtree(workspace.results / "films" / "ledger")
        (workspace.root / "src" / "sitecustomize.py").write_text(TAKES_MEMORY)
        # This cluster keeps no accounts.
        there = {**site, "account": None, "cpu": {**site["cpu"], "partition": partition}}
        (workspace.root / "profiles" / "site.yaml").write_text(yaml.safe_dump(there))
        runs[name] = Run(cluster, workspace, submit)
    *others, last = runs
    are_done = threading.Event()
    with ThreadPoolExecutor(len(runs)) as pool:
        ends = {name: pool.submit(disturb, run, DISTURBANCES[name], are_done) for name, run in runs.items()}
        wait([ends[name] for name in others])
        are_done.set()
        yield {name: ends[name].result() for name in (*others, last)}


pytestmark = pytest.mark.parametrize("cluster", ["queue"], indirect=True)


@pytest.mark.parametrize("name", DISTURBANCES)
def test_the_draws_are_the_bytes_of_a_run_that_nothing_disturbed(
    events: dict[str, list[Event]], undisturbed: Workspace, name: str
) -> None:
    workspace = events[name][0].run.workspace
    assert [event.kind for event in events[name]] == [how.__name__ for how in DISTURBANCES[name]]
    (done,), (expected,) = (w.results.glob("films/chains/*/group-000") for w in (workspace, undisturbed))
    assert done.parent.name == expected.parent.name, "another identity"
    assert hashes(done / "draws.zarr") == hashes(expected / "draws.zarr")
    assert json.loads((workspace.root / MANIFEST).read_text())["committed_draws"] == DRAWS


@pytest.mark.parametrize("name", DISTURBANCES)
def test_nothing_that_was_committed_is_made_again(events: dict[str, list[Event]], name: str) -> None:
    run = events[name][0].run
    last = run.markers()
    for event in events[name]:
        kept = event.markers.keys() & last.keys()
        assert all(last[commit] == event.markers[commit] for commit in kept), event.kind

    ledger = run.workspace.results / "films/ledger/sample-group-000.jsonl"
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    if events[name][-1].kind == "lose_scheduler":
        return
    resumed = [int(row["detail"].split()[1]) for row in rows if row["phase"] == "resume"]
    # A job that is killed cannot write where it went on; each that could went on where the one before it ended.
    assert resumed == sorted(resumed)
    assert all(any(start >= event.draws for start in resumed) for event in events[name])
    gradients = sum(row["gradients"] for row in rows if row["phase"] == "sample")
    assert gradients <= DRAWS * LEAPFROG_STEPS * 4


def test_what_the_scheduler_takes_away_comes_back_under_its_number(events: dict[str, list[Event]]) -> None:
    for name in ("first", "second"):
        ids = [event.job["id"] for event in events[name]]
        assert ids[0] != ids[1], "another attempt is another job"
        after = events[name][1].run.job()
        assert after is not None
        assert (after["id"], after["state"]) == (ids[1], "COMPLETED")


def test_a_job_without_memory_comes_back_with_more(events: dict[str, list[Event]]) -> None:
    first, second = (int(event.job["memory"].rstrip("M")) for event in events["second"])
    assert second == pytest.approx(2 * first, abs=2)
    assert (events["second"][0].run.workspace.root / "taken").exists()
