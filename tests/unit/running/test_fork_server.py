"""Jobs in forks end as they would on their own, and never outlive who asked for them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from bayesmesh.running.fork_client import ADDRESS
from bayesmesh.running.fork_server import Server, fork_name
from bayesmesh.running.prepared_imports import BESIDE, PREPARED, has_cores
from workspace import lay_out

START = "import time; from bayesmesh.running.fork_server import start_server; print(start_server().pid, flush=True); time.sleep(3600)"


def wait_for[Value](find: Callable[[], Value]) -> Value:
    """Return the first true value of a function, which may come when a busy machine has made its imports."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with contextlib.suppress(OSError, IndexError):
            if found := find():
                return found
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def arguments_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")[:-1]


def has_ended(process: int) -> bool:
    """Return whether a process has ended, also if its parent has not asked how."""
    status = Path(f"/proc/{process}/status")
    return not status.exists() or "Z (zombie)" in status.read_text()


def catches(process: int, number: signal.Signals) -> bool:
    """Return whether a process has set a handler of a signal."""
    (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text())
    return bool(int(mask, 16) >> (number - 1) & 1)


def forks_of(job: int) -> list[int]:
    """Return the processes that work for a job."""
    named = (path for path in Path("/proc").glob("[0-9]*/comm") if path.read_text().strip() == fork_name(job))
    return [number for path in named if not has_ended(number := int(path.parent.name))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace, whose source a test may edit."""
    return lay_out(tmp_path_factory.mktemp("forks") / "workspace", {}, {}).root


@pytest.fixture(scope="module")
def environment(user_environment: dict[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """The environment of the jobs of a process that has started a server; that is killed at the end."""
    own = {k: v for k, v in user_environment.items() if k != ADDRESS} | {"PYTHONPATH": str(folder / "src")}
    with subprocess.Popen([sys.executable, "-c", START], env=own, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        address = Path(wait_for(lambda: arguments_of(server)[3]), "socket")
        wait_for(address.exists)
        yield {**own, ADDRESS: str(address)}
        parent.kill()
        wait_for(lambda: has_ended(server))
        assert not address.parent.exists()


def run(folder: Path, environment: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "bayesmesh.cli", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, re.sub(r"^[\d:]{8}", "TIME", done.stderr, flags=re.M)


@contextlib.contextmanager
def waiting(folder: Path, environment: Mapping[str, str], verb: str) -> Iterator[subprocess.Popen[str]]:
    """Start a job that opens a pipe for its log, and so waits until somebody reads it."""
    log = folder / f"{verb}.log"
    os.mkfifo(log)
    command = [sys.executable, "-m", "bayesmesh.cli", verb, "--spec", "{}", "--log", str(log)]
    try:
        with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as job:
            yield job
    finally:
        log.unlink()


@pytest.mark.parametrize("words", [["shard", "--spec", "nowhere.json"], ["sample", "--help"], ["status"], ["sample"]])
def test_a_fork_says_and_returns_what_a_process_of_its_own_does(words: list[str], folder: Path, environment) -> None:
    alone = {**environment, ADDRESS: "off"}
    assert run(folder, environment, *words) == run(folder, alone, *words)


@pytest.mark.parametrize(
    ("verb", "number", "code"),
    [
        ("sample", signal.SIGTERM, 75),
        ("shard", signal.SIGTERM, -signal.SIGTERM),
        ("shard", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_signal_to_a_job_ends_its_fork(
    verb: str, number: signal.Signals, code: int, folder: Path, environment: dict[str, str]
) -> None:
    with waiting(folder, environment, verb) as job:
        (fork,) = wait_for(lambda: forks_of(job.pid))
        if code == 75:
            wait_for(lambda: catches(fork, number))
        job.send_signal(number)
        assert job.wait() == code
        wait_for(lambda: not forks_of(job.pid))


def test_a_signal_to_all_processes_of_a_cluster_job_ends_its_forks_but_not_the_server(
    folder: Path, environment: dict[str, str]
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(environment[ADDRESS])
        (server,) = struct.unpack("i8x", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    with waiting(folder, environment, "shard") as job:
        (fork,) = wait_for(lambda: forks_of(job.pid))
        for process in (server, fork, job.pid):
            os.kill(process, signal.SIGTERM)
        assert job.wait() == -signal.SIGTERM
    with waiting(folder, environment, "shard") as job:
        assert wait_for(lambda: forks_of(job.pid)), "the server is gone"
        job.kill()


def test_a_job_that_is_killed_while_it_asks_does_no_harm(folder: Path, environment: dict[str, str]) -> None:
    for sent in (b"", (100).to_bytes(8, "big"), (100).to_bytes(8, "big") + b"{"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(environment[ADDRESS])
            connection.sendall(sent)
    with waiting(folder, environment, "shard") as job:
        assert wait_for(lambda: forks_of(job.pid))
        job.kill()


def test_a_server_ends_with_its_parent_also_while_it_imports(environment: dict[str, str]) -> None:
    own = {name: value for name, value in environment.items() if name != ADDRESS}
    with subprocess.Popen([sys.executable, "-c", START], env=own, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        parent.kill()
    wait_for(lambda: has_ended(server))


def test_a_job_after_an_edit_or_with_other_variables_of_jax_does_its_work_itself(
    folder: Path, environment: dict[str, str]
) -> None:
    ask = "from bayesmesh.running.fork_client import run_in_fork; print(run_in_fork(['status']))"

    def said(**variables: str) -> str:
        command = [sys.executable, "-c", ask]
        done = subprocess.run(
            command, cwd=folder, env={**environment, **variables}, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()[-1]

    assert said() == "2"
    assert said(JAX_ENABLE_X64="0") == "None"
    assert said(**{ADDRESS: "/nowhere"}) == "None"
    # Also an edit that hides its time.
    edited = folder / "src" / "bayesmesh" / "errors.py"
    before = edited.stat()
    os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert said() == "None"


def test_imports_start_no_backend_of_jax_and_no_thread_that_a_fork_would_miss(environment: dict[str, str]) -> None:
    code = (
        "import pathlib, jax._src.xla_bridge as bridge; from bayesmesh.running.prepared_imports import PREPARED, prepare\n"
        "for named in PREPARED: prepare(named)\n"
        "print(bridge.backends_are_initialized(), *{p.read_text().strip() for p in pathlib.Path('/proc/self/task').glob('*/comm')})"
    )
    command = [sys.executable, "-c", code]
    variables = {**environment, "OPENBLAS_NUM_THREADS": "1"}
    said = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()
    # The allocator of Arrow has a thread that cleans up, and restores itself in forks.
    assert said[0] == "False"
    assert not set(said[1:]) - {Path("/proc/self/comm").read_text().strip(), "python", "jemalloc_bg_thd"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server in this process, whose forks are only seeming."""
    end, begin = os.pipe()
    with os.fdopen(end) as stdin, os.fdopen(begin, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        made = Server(tmp_path)
        yield made
        for listening in made._listening:
            listening.close()
        made._events.close()


def test_a_server_that_has_forked_a_job_stays_whole(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a first job may come while the server imports what that needs."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("its jobs would have two servers"))
    server.has_forked = True
    before = dict(server._events.get_map())
    assert not server.split()
    assert dict(server._events.get_map()) == before
    assert len(server._listening) == 2


def test_what_only_pages_need_is_imported_beside_sampling() -> None:
    """And not beside `compile`, which has work for all cores; where nothing compiles, nothing waits."""
    later = [name for name in PREPARED if name in BESIDE]
    assert later == ["pandas", "jinja2"]
    asked = {"fetch", "shard"}
    for stage, waiting in ((None, []), ("compile", later), ("sample", later[1:]), ("assemble", [])):
        asked |= {stage} if stage else set()
        assert [name for name in PREPARED if not has_cores(name, asked)] == waiting
