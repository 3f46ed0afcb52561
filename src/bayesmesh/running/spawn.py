"""Starts the processes of one run on this machine, and stands for them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

from bayesmesh.running.gpus import cards

__all__ = ["run_processes", "shares"]

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

PATIENCE_SECONDS = 60.0
"""How long the others may go on once one has failed."""


def shares(count: int, cores: int, names: Sequence[str], port: int) -> list[tuple[list[str], dict[str, str]]]:
    """Return what each process is told: options that go behind the given ones, and environment variables.

    Args:
        count: number of processes.
        cores: cores for all of them together.
        names: of the GPUs that are visible, as CUDA has them.
        port: a free port of this machine.

    >>> options, variables = shares(2, 5, ["0", "1", "4", "5"], 50000)[1]
    >>> options, variables["CUDA_VISIBLE_DEVICES"], variables["JAX_PROCESS_ID"]
    (['--cores', '2', '--gpus', '0'], '4,5', '1')
    """
    told = []
    for index in range(count):
        variables = {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
            "JAX_NUM_PROCESSES": str(count),
            "JAX_PROCESS_ID": str(index),
        }
        each = len(names) // count
        if each:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(names[index * each : (index + 1) * each])
        # The cards are held by the process that starts them.
        told.append((["--cores", str(max(1, cores // count)), "--gpus", "0"], variables))
    return told


def run_processes(arguments: Sequence[str], count: int, cores: int | None, environ: Mapping[str, str]) -> int:
    """Run `bayesmesh` with these arguments in several processes; returns the exit code.

    Signals that ask to stop are handed on. Each process has a session of its own: Ctrl-C of a terminal reaches it once,
    through here, and not twice.

    Args:
        arguments: of ``bayesmesh``.
        count: number of processes.
        cores: for all of them together; all of this machine when None.
        environ: the environment variables.

    Returns:
        0 when all ended well, else the code of the first that did not.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    names = [name for name, _ in cards(environ)]
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    children: list[subprocess.Popen[bytes]] = []
    heard: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        for child in children:
            if child.poll() is None:
                child.send_signal(number)

    # Before the first is started: a request to stop that comes in between is for all.
    before = {number: signal.signal(number, hand_on) for number in _SIGNALS}
    try:
        for options, variables in shares(count, cores or usable, names, port):
            command = [sys.executable, "-m", "bayesmesh.cli", *arguments, *options]
            children.append(subprocess.Popen(command, env={**environ, **variables}, start_new_session=True))
            for number in heard:
                children[-1].send_signal(number)
        return _wait(children)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all; once one has failed, for a bounded time."""
    first_failure, until = 0, float("inf")
    while any(child.poll() is None for child in children) and time.monotonic() < until:
        time.sleep(0.05)
        failed = [child.returncode for child in children if child.poll() not in (None, 0)]
        if failed and not first_failure:
            # A process that a signal ended has a negative number; a shell would say 128 more than the signal's.
            first_failure = failed[0] if failed[0] > 0 else 128 - failed[0]
            until = time.monotonic() + PATIENCE_SECONDS
    return first_failure or next((1 for child in children if child.returncode), 0)
