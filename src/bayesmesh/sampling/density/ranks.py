"""Determine the rank of this process among those that run one program together.

JAX is not imported here, so that a wrong start fails immediately.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from bayesmesh.errors import ConfigError
from bayesmesh.store.slurm_job import WITH_SRUN, first_host, integer, num_tasks

JOIN_VARIABLE = "BAYESMESH_JOIN_SECONDS"
"""Environment variable: how long a process waits for the others, in seconds."""

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
"""Environment variables of any launcher but Slurm: HOST:PORT of the first process, number of processes, index of this."""

_FIRST_PORT, _NUM_PORTS = 50_000, 10_000


@dataclasses.dataclass(frozen=True)
class ProcessRank:
    """The rank of a process among those that run one program.

    Attributes:
        num_processes: number of processes.
        index: index of this process, from 0.
        address: host and port of the first process, where all meet.
        source: variable that determined the rank, for messages.
        device: number of the one GPU of this process among those visible to it; None for all of them.
        join_seconds: how long to wait for the others.
    """

    num_processes: int = 1
    index: int = 0
    address: str = ""
    source: str = "no variable indicates more"
    device: int | None = None
    join_seconds: float = 120.0


def find_rank(environ: Mapping[str, str]) -> ProcessRank:
    """Return the rank that JAX's variables give, else Slurm's, else that of a single process.

    Raises:
        ConfigError: a variable is missing or invalid.
    """
    rank = _from_variables(environ) or _from_slurm(environ) or ProcessRank()
    seconds = environ.get(JOIN_VARIABLE, "")
    if seconds and not re.fullmatch(r"\d+(\.\d*)?", seconds):
        raise ConfigError(f"{JOIN_VARIABLE}={seconds}: not a number of seconds", f"unset {JOIN_VARIABLE}")
    return dataclasses.replace(rank, join_seconds=float(seconds)) if seconds else rank


def _from_variables(environ: Mapping[str, str]) -> ProcessRank | None:
    found = {name: environ[name] for name in VARIABLES if environ.get(name)}
    if not found:
        return None
    for name in (name for name in VARIABLES if name not in found):
        remedy = f"give every process {', '.join(VARIABLES)}, or none of them"
        raise ConfigError(f"{name}: not set, but {' and '.join(found)} need it", remedy)
    address, count, index = (found[name] for name in VARIABLES)
    if not re.fullmatch(r".+:\d+", address):
        raise ConfigError(
            f"{VARIABLES[0]}={address}: not of the form HOST:PORT", "name a host that all reach, and a free port"
        )
    if not (count.isdecimal() and index.isdecimal() and int(index) < int(count)):
        message = f"{VARIABLES[1]}={count}, {VARIABLES[2]}={index}: not a number of processes and an index below it"
        raise ConfigError(message, "number from 0")
    return ProcessRank(int(count), int(index), address, VARIABLES[1])


def _from_slurm(environ: Mapping[str, str]) -> ProcessRank | None:
    """Return the rank of this task among those of its job step; None unless there are several."""
    count = num_tasks(environ)
    if count == 1:
        return None
    index = integer(environ, "SLURM_PROCID", 0)
    if index >= count:
        message = f"SLURM_PROCID={index}: not one of {count} tasks, which are numbered from 0"
        raise ConfigError(message, f"{WITH_SRUN}, which sets it for each")
    job, step = integer(environ, "SLURM_JOB_ID", 0), environ.get("SLURM_STEP_ID", "0")
    # Each step of a job, and each job on a host, needs its own port.
    port = _FIRST_PORT + (job * 16 + int(step if step.isdecimal() else 0) % 16) % _NUM_PORTS
    nodes = integer(environ, "SLURM_NNODES", 1, least=1)
    share_hosts = count > integer(environ, "SLURM_STEP_NUM_NODES", nodes, least=1)
    local = integer(environ, "SLURM_LOCALID", 0) if share_hosts else None
    address = f"{first_host(environ['SLURM_STEP_NODELIST'])}:{port}"
    return ProcessRank(count, index, address, "SLURM_STEP_NUM_TASKS", local)


def check_num_processes(rank: ProcessRank, processes: int, experiment: str) -> None:
    """Compare the started processes with those that the experiment asks for.

    Args:
        rank: rank of this process.
        processes: ``compute.processes``.
        experiment: name of the experiment.

    Raises:
        ConfigError: they differ; otherwise several processes might run the same chains.
    """
    if (started := rank.num_processes) == processes:
        return
    several = f"start them here with `--processes 1x{processes}`, on a cluster with a profile for several"
    remedy = f"{'start it once' if processes == 1 else several}, or set\n    compute:\n      processes: {started}"
    message = f"is {processes}, but there are {started} processes ({rank.source})"
    raise ConfigError(f"experiment '{experiment}': key 'compute.processes': {message}", remedy)
