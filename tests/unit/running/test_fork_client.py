"""A job hands itself over, and ends as the server says; without one, or where that declines, it does its work itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.running import fork_client
from bayesmesh.running.fork_client import ADDRESS, DECLINED, identity_of, run_in_fork


def answer(listening: socket.socket, reply: str, received: list[Any]) -> None:
    """Answer one job as a server does, and keep what it asked for."""
    connection, _ = listening.accept()
    with connection:
        length, files, _, _ = socket.recv_fds(connection, 8, 3)
        received += [json.loads(connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)), len(files)]
        for file in files:
            os.close(file)
        connection.sendall(reply.encode())


@pytest.mark.parametrize(
    ("verb", "name", "reply", "code"),
    [
        ("fetch", "socket-light", "0\n", 0),
        *(("sample", "socket", *each) for each in [("75\n", 75), (DECLINED, None), ("", 1)]),
    ],
)
def test_a_job_ends_as_the_server_says(
    verb: str,
    name: str,
    reply: str,
    code: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    received: list[Any] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / name))
        listening.listen()
        server = threading.Thread(target=answer, args=(listening, reply, received), daemon=True)
        server.start()
        monkeypatch.setenv(ADDRESS, str(tmp_path / "socket"))
        assert run_in_fork([verb, "--spec", "some.json"]) == code
        server.join()
    request, num_files = received
    assert (request["words"], request["cwd"], num_files) == ([verb, "--spec", "some.json"], os.getcwd(), 3)
    assert ADDRESS not in request["environment"]
    assert ("has ended" in capfd.readouterr().err) == (reply == "")


@pytest.mark.parametrize("address", ["off", "/nowhere/socket"])
def test_without_a_server_a_job_does_its_work_itself(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, address)
    assert run_in_fork(["status"]) is None


def test_a_job_waits_for_a_server_that_has_been_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is made before its process starts: the first job of a short plan comes before it listens."""
    received: list[Any] = []

    def start() -> None:
        time.sleep(0.2)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(tmp_path / "socket"))
            listening.listen()
            answer(listening, "0\n", received)

    server = threading.Thread(target=start, daemon=True)
    server.start()
    monkeypatch.setenv(ADDRESS, str(tmp_path / "socket"))
    assert run_in_fork(["diagnose"]) == 0
    server.join()
    assert received[0]["words"] == ["diagnose"]


def test_a_job_does_not_wait_for_ever_for_a_server_that_never_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_client, "STARTS_WITHIN", 0.05)
    monkeypatch.setenv(ADDRESS, str(tmp_path / "socket"))
    assert run_in_fork(["diagnose"]) is None


def test_a_job_imports_little_before_it_is_handed_over() -> None:
    code = "import sys; import bayesmesh.running.fork_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = {name for name in done.stdout.split() if name.startswith("bayesmesh")}
    assert own == {"bayesmesh", "bayesmesh.running", "bayesmesh.running.fork_client"}
    assert {"argparse", "logging"}.isdisjoint(done.stdout.split())


def test_jobs_differ_in_what_imports_read() -> None:
    assert identity_of({"HOME": "/a"}) == identity_of({"HOME": "/b"})
    assert identity_of({"JAX_ENABLE_X64": "1"}) != identity_of({})


def test_an_environment_reached_by_a_link_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Homes on clusters often are links, which a script's first line has resolved.
    there = identity_of({})
    (tmp_path / "home").symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "home"))
    assert identity_of({}) == there
