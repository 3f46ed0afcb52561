"""Run a stage as several processes: restart the command under srun in a Slurm job, else on this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence

from bayesmesh.errors import ConfigError, DeviceError
from bayesmesh.running.gpus import hold_gpus
from bayesmesh.running.slurm.commands import srun_command
from bayesmesh.running.slurm.variables import job_id, num_tasks, owns_its_step
from bayesmesh.running.spawn import run_processes


def parse_processes(text: str) -> tuple[int, int]:
    """Return the number of nodes and of processes per node from a text such as ``2x4``.

    >>> parse_processes("2x4")
    (2, 4)

    Raises:
        ConfigError: the text has another form.
    """
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,3})", text)
    if match is None:
        raise ConfigError(
            f"--processes {text}: is not NODESxPROCESSES", "write for example 2x4: two nodes with four processes each"
        )
    return int(match[1]), int(match[2])


def launch(
    arguments: Sequence[str],
    processes: str,
    gpus: int,
    environ: Mapping[str, str] = os.environ,
    *,
    cores: int | None = None,
) -> int | None:
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
