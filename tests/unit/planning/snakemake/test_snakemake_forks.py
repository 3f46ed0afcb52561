"""What Snakemake measures for a job: its process, those below it, and the fork that works for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from snakemake.benchmark import BenchmarkRecord, BenchmarkTimer

from bayesmesh.planning.snakemake import snakemake_forks
from bayesmesh.planning.snakemake.snakemake_forks import measure_forks, serve
from bayesmesh.running.fork_server import fork_name

SLEEPS = "import time; time.sleep(60)"
STARTS_ANOTHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPS!r}])"


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Started processes, which end with the test."""
    monkeypatch.setattr(BenchmarkTimer, "__init__", BenchmarkTimer.__init__)
    measure_forks()
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        for below in psutil.Process(process.pid).children(recursive=True):
            below.kill()
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("facts", "started"),
    [
        ({}, [()]),
        ({"dryrun": True}, []),
        ({"local_exec": False}, []),
        ({"is_main_process": False, "remote_exec": True, "targets": ("diagnose", "report")}, [("diagnose", "report")]),
        ({"is_main_process": False, "remote_exec": True, "targets": ("sample",)}, []),
        ({"is_main_process": False, "remote_exec": True, "targets": ("diagnose", "report"), "local_exec": False}, []),
        ({"is_main_process": False, "targets": ("diagnose", "report")}, []),
    ],
    ids=["here", "dry run", "login node", "group", "one stage", "outer", "subprocess"],
)
def test_a_server_is_started_once_where_forks_save_imports(
    facts: dict[str, Any], started: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(snakemake_forks, "start_server", lambda stages: asked.append(tuple(sorted(stages))))
    snakemake_forks._start.cache_clear()
    about = {"dryrun": False, "local_exec": True, "is_main_process": True, "remote_exec": False} | facts
    targets = [SimpleNamespace(rulename=name) for name in about.pop("targets", ())]
    workflow = SimpleNamespace(**about, dag_settings=SimpleNamespace(target_jobs=targets))
    serve(workflow)
    serve(workflow)
    snakemake_forks._start.cache_clear()
    assert asked == started


def begin(processes: list[subprocess.Popen[bytes]], code: str, name: str = "a job") -> int:
    named = f"import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); {code}"
    processes.append(subprocess.Popen([sys.executable, "-c", named, name]))
    number = processes[-1].pid
    wait_until(lambda: Path(f"/proc/{number}/comm").read_text().strip() == name)
    return number


def wait_until(is_so: Callable[[], object]) -> None:
    for _ in range(1000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("waited 10 s in vain")


def wait_for_child(number: int) -> int:
    wait_until(psutil.Process(number).children)
    return psutil.Process(number).children()[0].pid


def measured(number: int) -> set[int]:
    timer = BenchmarkTimer(number, BenchmarkRecord())
    return {process.pid for process in timer.main.children(recursive=True)}


def test_processes_below_a_job_are_measured(processes: list[subprocess.Popen[bytes]]) -> None:
    job = begin(processes, STARTS_ANOTHER)
    below = wait_for_child(job)
    assert measured(job) == {below}


def test_a_fork_is_measured_with_its_job_alone(processes: list[subprocess.Popen[bytes]]) -> None:
    job, other = begin(processes, SLEEPS), begin(processes, SLEEPS)
    fork = begin(processes, STARTS_ANOTHER, fork_name(job))
    below = wait_for_child(fork)
    assert measured(job) == {fork, below}
    assert measured(other) == set()


def test_a_kernel_without_lists_of_children_is_asked_otherwise(
    processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin(processes, STARTS_ANOTHER)
    fork = begin(processes, SLEEPS, fork_name(job))
    below, exists = wait_for_child(job), Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "children" and exists(path))
    assert measured(job) == {below, fork}


ALONE = """
import signal, subprocess, sys
from bayesmesh.planning.snakemake.snakemake_forks import pass_on_signals
signal.signal(signal.SIGTERM, lambda number, frame: print("Snakemake's own handler", flush=True))
pass_on_signals()
job = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
print("begun", flush=True)
print(job.wait(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_stop_request_to_snakemake_alone_reaches_its_jobs(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        run.send_signal(number)
        said, _ = run.communicate(timeout=30)
    assert sorted(said.split("\n")) == ["", f"{-signal.SIGTERM}", "Snakemake's own handler"]
