"""Run a stage as several processes: restart the command under srun in a Slurm job, or several times on this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

from bayesmesh.errors import ConfigError, DeviceError
from bayesmesh.sampling.density.ranks import VARIABLES
from bayesmesh.store.machine import usable_cores
from bayesmesh.store.slurm_job import job_id, num_tasks, owns_its_step
from bayesmesh.workflow.arguments import CORES, GPUS, command_of
from bayesmesh.workflow.gpus import hold_gpus, visible_gpus
from bayesmesh.workflow.slurm.commands import srun_command

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)

FAILURE_GRACE_SECONDS = 60.0
"""How long the other processes may continue after one has failed."""


def parse_processes(text: str) -> tuple[int, int]:
    """Return the number of nodes and of processes per node from a text such as ``2x4``.

    >>> parse_processes("2x4")
    (2, 4)

    Raises:
        ConfigError: the text has another form.
    """
    if (match := re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,3})", text)) is None:
        example = "write for example 2x4: two nodes with four processes each"
        raise ConfigError(f"--processes {text}: not of the form NODESxPROCESSES", example)
    return int(match[1]), int(match[2])


def launch(
    arguments: Sequence[str], processes: str, gpus: int, environ: Mapping[str, str] = os.environ, *,
    cores: int | None = None,
) -> int | None:  # fmt: skip
    """Start several processes if the command asks for them and this process is not yet one of them.

    Args:
        arguments: of ``bayesmesh``.
        processes: ``--processes``.
        gpus: GPUs of the job; locked here if the processes run on this machine.
        environ: the environment variables.
        cores: cores of this machine for all processes together; all cores if None.

    Returns:
        None if this process should do the work itself; the exit code if the processes ran on this machine.

    Raises:
        ConfigError: `processes` does not have the form ``2x4``, or a variable of Slurm is invalid.
        DeviceError: several nodes are requested outside a Slurm job, or more GPUs than exist.
    """
    nodes, each = parse_processes(processes)
    if nodes * each == 1 or "JAX_PROCESS_ID" in environ or num_tasks(environ) > 1:
        return None
    # In a shell from srun, or a job of one task, this process already owns all of its node's resources.
    in_step = owns_its_step(environ)
    if nodes == 1 and (in_step or not job_id(environ)):
        with hold_gpus(gpus):
            return run_processes(arguments, each, cores, environ)
    if not job_id(environ) or shutil.which("srun", path=environ.get("PATH")) is None:
        raise DeviceError(
            f"--processes {processes}: several nodes need a Slurm job, and this is not one",
            "use `--profile profiles/slurm-gpu-multinode` on a login node, or leave --processes out",
        )
    command = srun_command(arguments, nodes, each, gpus, in_step=in_step)
    sys.stderr.flush()
    # Replace this process, so that signals to it reach srun, which forwards them.
    os.execvp(command[0], command)  # noqa: S606


def split_resources(count: int, cores: int, names: Sequence[str], port: int) -> list[tuple[list[str], dict[str, str]]]:
    """Return additional options and environment variables for each process.

    Args:
        count: number of processes.
        cores: cores for all processes together.
        names: CUDA's numbers of the visible GPUs.
        port: a free port of this machine.

    >>> options, variables = split_resources(2, 5, ["0", "1", "4", "5"], 50000)[1]
    >>> options, variables["CUDA_VISIBLE_DEVICES"], variables["JAX_PROCESS_ID"]
    (['--cores', '2', '--gpus', '0'], '4,5', '1')
    """
    split, each = [], len(names) // count
    for index in range(count):
        variables = dict(zip(VARIABLES, (f"localhost:{port}", str(count), str(index)), strict=True))
        if each:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(names[index * each : (index + 1) * each])
        # The parent process holds the GPUs, so the children must not lock them.
        split.append(([CORES[0], str(max(1, cores // count)), GPUS[0], "0"], variables))
    return split


def run_processes(arguments: Sequence[str], count: int, cores: int | None, environ: Mapping[str, str]) -> int:
    """Run `bayesmesh` with these arguments in several processes and return the exit code.

    Stop signals are forwarded. Each process has its own session, so that Ctrl-C in a terminal reaches it only once,
    through this process.

    Args:
        arguments: of ``bayesmesh``.
        count: number of processes.
        cores: cores for all processes together; all cores of this machine if None.
        environ: the environment variables.

    Returns:
        0 if all processes succeeded, else the exit code of the first that failed.
    """
    names = [name for name, _ in visible_gpus(environ)]
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    children: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for child in children:
            child.send_signal(number)

    # Installed before the first start, so that a stop request during the starts reaches all.
    before = {number: signal.signal(number, forward) for number in _SIGNALS}
    try:
        for options, variables in split_resources(count, cores or usable_cores(), names, port):
            command = command_of(arguments, options)
            children.append(subprocess.Popen(command, env={**environ, **variables}, start_new_session=True))
            for number in received:
                children[-1].send_signal(number)
        return _wait(children)
    finally:
        for child in children:
            child.kill()
            child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(children: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all processes; after one has failed, for a limited time."""
    first_failure, until = 0, float("inf")
    while any(child.poll() is None for child in children) and time.monotonic() < until:
        time.sleep(0.05)
        failed = [child.returncode for child in children if child.poll() not in (None, 0)]
        if failed and not first_failure:
            # Popen reports a process ended by signal n as -n; shells report 128 + n.
            first_failure = failed[0] if failed[0] > 0 else 128 - failed[0]
            until = time.monotonic() + FAILURE_GRACE_SECONDS
    return first_failure or next((1 for child in children if child.returncode), 0)
