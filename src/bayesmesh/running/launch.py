"""One stage as several processes: the command runs itself again, under srun in a Slurm job, else on this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence

from bayesmesh.errors import ConfigError, DeviceError
from bayesmesh.running.gpus import hold_cards
from bayesmesh.running.slurm.step import num_tasks
from bayesmesh.running.spawn import run_processes

__all__ = ["launch", "parse_processes", "srun_command"]


def parse_processes(text: str) -> tuple[int, int]:
    """Return nodes and processes on each, from ``2x4``.

    >>> parse_processes("2x4")
    (2, 4)

    Raises:
        ConfigError: it is not of that form.
    """
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,3})", text)
    if match is None:
        raise ConfigError(f"--processes {text}: is not NODESxPROCESSES", "use a form such as 2x4: two nodes, four each")
    return int(match[1]), int(match[2])


def srun_command(arguments: Sequence[str], nodes: int, each: int, gpus: int, *, in_step: bool = False) -> list[str]:
    """Return the command that starts `nodes` x `each` processes, each with a GPU of its own where there are any.

    Args:
        arguments: of ``bayesmesh``.
        nodes: nodes of the job.
        each: processes on each node.
        gpus: GPUs of the job.
        in_step: whether this process is in a step itself, which holds what the new one needs.
    """
    return [
        "srun", f"--nodes={nodes}", f"--ntasks={nodes * each}", f"--ntasks-per-node={each}",
        # No MPI: JAX's processes find each other by what Slurm says of the step. One that fails ends all.
        "--mpi=none", "--kill-on-bad-exit=1", *(["--gpus-per-task=1"] if gpus else []),
        *(["--overlap"] if in_step else []),
        sys.executable, "-m", "bayesmesh.cli", *arguments,
    ]  # fmt: skip


def launch(
    arguments: Sequence[str],
    processes: str,
    gpus: int,
    environ: Mapping[str, str] = os.environ,
    *,
    cores: int | None = None,
) -> int | None:
    """Become several processes, where several are asked for and this is not one of them yet.

    Args:
        arguments: of ``bayesmesh``.
        processes: ``--processes``.
        gpus: GPUs of the job; where the processes run on this machine, they are held for them.
        environ: the environment variables.
        cores: of this machine, for all of them; all when None.

    Returns:
        None when this is one of them, or the only one; the exit code when they have run on this machine.

    Raises:
        ConfigError: `processes` is not of the form ``2x4``, or a variable of Slurm is impossible.
        DeviceError: several nodes are asked for, and this is not inside a Slurm job; or there are fewer GPUs.
    """
    nodes, each = parse_processes(processes)
    if nodes * each == 1 or "JAX_PROCESS_ID" in environ or num_tasks(environ) > 1:
        return None
    # A shell that srun has given, or a job of one task: all that is on this node is this process's already.
    in_step = bool(environ.get("SLURM_STEP_NODELIST"))
    if nodes == 1 and (in_step or "SLURM_JOB_ID" not in environ):
        with hold_cards(gpus):
            return run_processes(arguments, each, cores, environ)
    if "SLURM_JOB_ID" not in environ or shutil.which("srun", path=environ.get("PATH")) is None:
        raise DeviceError(
            f"--processes {processes}: several nodes need a Slurm job, and this is none",
            "use `--profile profiles/slurm-gpu-multinode` on a login node, or leave --processes out",
        )
    command = srun_command(arguments, nodes, each, gpus, in_step=in_step)
    sys.stderr.flush()
    # In this process's place, so that a signal to it reaches srun, which passes it on.
    os.execvp(command[0], command)  # noqa: S606
