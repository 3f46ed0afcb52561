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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayesmesh.operations.status.chains import read_group
from bayesmesh.store.chains.markers import marker_names
from bayesmesh.store.ledger import read_rows
from loopback import MAX_MINUTES, Cluster
from workspace import Workspace, hashes

MANIFEST = "results/films/chains/group-000.json"
HOLD = Path(__file__).with_name("hold.py")
HELD_AT = (5, 12, 19)
"""Committed draws at which a sampler is held; far enough apart for the few that one told to stop still commits."""

DRAWS, LEAPFROG_STEPS = 26, 2
PATIENCE_SECONDS = 900.0
"""Only a run that hangs takes as long: tests wait for events, and a slow machine may take its time between them."""

PARTITIONS = {"first": "spare", "second": "fragile", "third": "cpu", "fourth": "cpu"}
"""Run -> where its jobs are: what happens to one is not to happen to the others."""


class Run:
    """One experiment on the cluster: its Snakemake, its sampling job, and what is committed.

    Args:
        cluster: that it runs on.
        workspace: of its own.
        submit: starts Snakemake.
        given_up: set when nothing is to be waited for any more.
    """

    def __init__(
        self, cluster: Cluster, workspace: Workspace, submit: Callable[..., Any], given_up: threading.Event
    ) -> None:
        self.cluster, self.workspace, self._submit = cluster, workspace, submit
        self.given_up = given_up
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
        assert folder is not None
        return read_group(folder).done

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait for an event, as long as Snakemake runs and no other run has failed."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert not self.given_up.is_set(), f"another run failed while this one waited for {what}"
            assert self.snakemake.process.poll() is None, (
                f"Snakemake ended while the test waited for {what}:\n{self.snakemake.said()}"
            )
            assert time.monotonic() < end, f"waited in vain for {what}; {self.job()}\n{self.snakemake.said()}"
            time.sleep(0.1)

    def catch(self, number: int) -> Event:
        """Wait until the sampler is held for the `number`-th time."""
        held = self.workspace.root / f"held-{number}"
        self.wait_for(f"a sampler that is held at {HELD_AT[number]} draws", held.exists)
        job = self.job()
        assert job is not None
        assert job["state"] == "RUNNING"
        assert HELD_AT[number] <= self.draws() < DRAWS
        return Event(self, number, job, int(held.read_text()), self.draws(), self.markers())

    def finish(self) -> None:
        self.snakemake.finish(PATIENCE_SECONDS)


@dataclasses.dataclass
class Event:
    """A sampler that is held in the middle, to be disturbed.

    Attributes:
        run: whose.
        number: how many times a sampler of this run was held before.
        job: in which job.
        process: its number.
        draws: draws that are committed.
        markers: commit -> when it was made.
        kind: what then happened.
    """

    run: Run
    number: int
    job: dict[str, str]
    process: int
    draws: int
    markers: dict[str, int]
    kind: str = ""

    def ask(self, *command: str) -> None:
        done = self.run.cluster.ask(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    def say(self, word: str) -> None:
        """Tell the sampler that is held: ``go`` or ``swell``."""
        (self.run.workspace.root / f"{word}-{self.number}").touch()

    def wait_for_end(self) -> None:
        """Wait until this attempt of the job is over; a later one may run already, under its number or another."""

        def is_over() -> bool:
            now = self.run.job()
            attempt = ("id", "restarts")
            return now is None or now["state"] != "RUNNING" or any(now[key] != self.job[key] for key in attempt)

        self.run.wait_for(f"the end of job {self.job['id']} after '{self.kind}'", is_over)


def preempt(event: Event) -> None:
    event.ask("sbatch", "-p", "urgent", "--exclusive", "--output=/dev/null", "--wrap", "sleep 1")


def stop(event: Event) -> None:
    event.ask("scancel", "--signal=TERM", event.job["id"])


def cancel(event: Event) -> None:
    event.ask("scancel", event.job["id"])


def run_out_of_time(event: Event) -> None:
    event.ask("scontrol", "update", f"jobid={event.job['id']}", "timelimit=0:01")


def take_memory(event: Event) -> None:
    event.say("swell")


def lose_node(event: Event) -> None:
    # It does not come back; the partition has another one.
    event.ask("scontrol", "update", f"nodename={event.job['nodes']}", "state=down", "reason=test")


def lose_main_process(event: Event) -> None:
    """The job goes on, and a second one meets it."""
    run = event.run
    run.snakemake.end()
    run.start()
    run.wait_for("a second job that is refused", lambda: "is being written by process" in run.snakemake.said())
    event.say("go")


def lose_scheduler(event: Event) -> None:
    """The controller is deaf while the job goes on and ends."""
    controller = event.run.cluster.pid("slurmctld")
    assert controller is not None
    os.kill(controller, signal.SIGSTOP)
    try:
        event.say("go")
        event.run.wait_for("the last draw", (event.run.workspace.root / MANIFEST).exists)
        # Long enough for the executor to ask in vain at least once.
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
    """Make it one chain group with a commit for every draw."""
    for key, value in (("chain_groups", 1), ("draws", DRAWS), ("grace_seconds", 5.0)):
        workspace.set("films", f"sampling.{key}", value)
    workspace.set("films", "kernel.num_leapfrog_steps", LEAPFROG_STEPS)


def disturb(run: Run, disturbances: Sequence[Callable[[Event], None]], others_are_done: threading.Event) -> list[Event]:
    """Disturb a run several times, and let it end."""
    events = []
    try:
        for number, how in enumerate(disturbances):
            event = run.catch(number)
            event.kind = how.__name__
            events.append(event)
            if how is lose_scheduler:
                # It is everybody's; until they have ended, the job that waits here is not to run out of time.
                event.ask("scontrol", "update", f"jobid={event.job['id']}", f"timelimit={MAX_MINUTES}")
                run.wait_for("the others' end", others_are_done.is_set)
            how(event)
            if how not in LEAVES_THE_JOB:
                event.wait_for_end()
        run.finish()
    except BaseException:
        run.given_up.set()
        raise
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
) -> dict[str, list[Event]]:
    """Return what happened to each of the runs, all of which have ended."""
    folder = tmp_path_factory.mktemp("disturbed")
    runs, given_up = {}, threading.Event()
    for name, partition in PARTITIONS.items():
        workspace = undisturbed.copy(folder / name)
        # What was compiled is there, and no draw.
        shutil.rmtree(workspace.results / "films" / "chains")
        shutil.rmtree(workspace.results / "films" / "ledger")
        shutil.copy(HOLD, workspace.root / "src" / "sitecustomize.py")
        (workspace.root / "hold").write_text(" ".join(map(str, HELD_AT[: len(DISTURBANCES[name])])))
        # This cluster keeps no accounts.
        there = {**site, "account": None, "cpu": {**site["cpu"], "partition": partition}}
        (workspace.root / "profiles" / "site.yaml").write_text(yaml.safe_dump(there))
        runs[name] = Run(cluster, workspace, submit, given_up)
    others = list(runs)[:-1]
    are_done = threading.Event()
    with ThreadPoolExecutor(len(runs)) as pool:
        ends = {name: pool.submit(disturb, run, DISTURBANCES[name], are_done) for name, run in runs.items()}
        try:
            wait([ends[name] for name in others])
            are_done.set()
            wait(ends.values())
        finally:
            # Interrupted, the threads are not to wait for events that nobody brings about.
            given_up.set()
    # What failed first made the others give up.
    failed = [error for end in ends.values() if (error := end.exception()) is not None]
    for error in sorted(failed, key=lambda error: "another run failed" in str(error)):
        raise error
    return {name: end.result() for name, end in ends.items()}


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

    ledger = run.workspace.results / "films/ledger/sample-group-000.json"
    rows = list(read_rows(ledger))
    if events[name][-1].kind == "lose_scheduler":
        return
    resumed = [int(row["detail"].split()[1]) for row in rows if row["phase"] == "resume"]
    # A job that is killed cannot write where it went on; each that could went on where the one before it ended.
    assert resumed == sorted(resumed)
    assert all(any(start >= event.draws for start in resumed) for event in events[name])
    # The last attempt states the gradients of all draws.
    gradients = next(row["gradients"] for row in reversed(rows) if row["phase"] == "sample")
    assert gradients <= DRAWS * LEAPFROG_STEPS * 4


def test_what_the_scheduler_takes_away_comes_back_under_its_number(events: dict[str, list[Event]]) -> None:
    for name in ("first", "second"):
        ids = [event.job["id"] for event in events[name]]
        assert ids[0] != ids[1], "another attempt is another job"
        after = events[name][1].run.job()
        assert after is not None
        assert (after["id"], after["state"]) == (ids[1], "COMPLETED")


MOST_MEMORY_MB = 4000
"""Of a job, as the site of these tests says."""


def test_a_job_without_memory_comes_back_with_more(events: dict[str, list[Event]]) -> None:
    first, second = (int(event.job["memory"].rstrip("M")) for event in events["second"])
    assert second == pytest.approx(min(2 * first, MOST_MEMORY_MB), abs=2)
