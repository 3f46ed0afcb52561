"""Which of how many processes this is: alone, or one of several that run one program together.

JAX is not imported here, so that a wrong start is refused at once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from bayesmesh.errors import ConfigError
from bayesmesh.running.slurm.step import num_tasks, whole_number

__all__ = ["JOIN_VARIABLE", "VARIABLES", "Place", "check_place", "find_place"]

JOIN_VARIABLE = "BAYESMESH_JOIN_SECONDS"
"""Environment variable: how long a process waits for the others, in seconds."""

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
"""Environment variables of any launcher but Slurm: HOST:PORT of the first process, how many there are, number of this."""

_FIRST_PORT, _NUM_PORTS = 50_000, 10_000


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a process among those that were started together.

    Attributes:
        num_processes: how many there are.
        index: number of this one.
        address: host and port of the first, where all meet.
        told_by: what said so, for messages.
        device: number of the one GPU that is this process's among those it sees; all are when None.
        join_seconds: how long to wait for the others.
    """

    num_processes: int = 1
    index: int = 0
    address: str = ""
    told_by: str = "nothing says that there are more"
    device: int | None = None
    join_seconds: float = 120.0


def find_place(environment: Mapping[str, str]) -> Place:
    """Return the place that the environment tells: variables of JAX, else of Slurm, else that of a process alone.

    Raises:
        ConfigError: some of what belongs together is missing, or a value is impossible.
    """
    place = _from_variables(environment) or _from_slurm(environment) or Place()
    seconds = environment.get(JOIN_VARIABLE, "")
    if seconds and not re.fullmatch(r"\d+(\.\d*)?", seconds):
        raise ConfigError(f"{JOIN_VARIABLE}={seconds}: is no number of seconds", f"unset {JOIN_VARIABLE}")
    return dataclasses.replace(place, join_seconds=float(seconds)) if seconds else place


def _from_variables(environment: Mapping[str, str]) -> Place | None:
    found = {name: environment[name] for name in VARIABLES if environment.get(name)}
    if not found:
        return None
    for name in VARIABLES:
        if name not in found:
            raise ConfigError(
                f"{name}: is not set, and {' and '.join(found)} are of no use without it",
                f"give every process {', '.join(VARIABLES)}, or none of them",
            )
    address, count, index = (found[name] for name in VARIABLES)
    if not re.fullmatch(r".+:\d+", address):
        raise ConfigError(f"{VARIABLES[0]}={address}: is not HOST:PORT", "name a host that all reach, and a free port")
    if not (count.isdecimal() and index.isdecimal() and int(index) < int(count)):
        raise ConfigError(
            f"{VARIABLES[1]}={count}, {VARIABLES[2]}={index}: are not a number and one below it", "number from 0"
        )
    return Place(int(count), int(index), address, VARIABLES[1])


def _from_slurm(environment: Mapping[str, str]) -> Place | None:
    """A task of a step with several."""
    count = num_tasks(environment)
    if count == 1:
        return None
    index = whole_number(environment, "SLURM_PROCID", 0)
    if index >= count:
        raise ConfigError(
            f"SLURM_PROCID={index}: is no task of {count}, which are numbered from 0",
            "start the processes with srun, which sets it for each",
        )
    job, step = whole_number(environment, "SLURM_JOB_ID", 0), environment.get("SLURM_STEP_ID", "0")
    # Steps of one job, and jobs on one host, are to have ports of their own.
    port = _FIRST_PORT + (job * 16 + int(step if step.isdecimal() else 0) % 16) % _NUM_PORTS
    nodes = whole_number(environment, "SLURM_NNODES", 1, least=1)
    share_hosts = count > whole_number(environment, "SLURM_STEP_NUM_NODES", nodes, least=1)
    device = whole_number(environment, "SLURM_LOCALID", 0) if share_hosts else None
    address = f"{first_host(environment['SLURM_STEP_NODELIST'])}:{port}"
    return Place(count, index, address, "SLURM_STEP_NUM_TASKS", device)


def first_host(hosts: str) -> str:
    """Return the first host of a list as Slurm writes it.

    >>> first_host("gpu[003-010,12],cpu1"), first_host("n1,n2")
    ('gpu003', 'n1')

    Raises:
        ConfigError: it is no such list.
    """
    host = re.sub(r"\[(\d+)[-,\d]*\]", r"\1", re.split(r",(?![^[]*\])", hosts)[0])
    if not re.fullmatch(r"\w([\w.-]*\w)?", host, re.ASCII):
        raise ConfigError(
            f"SLURM_STEP_NODELIST={hosts}: is no list of hosts as Slurm writes it",
            "start the processes with srun, which sets it, or unset it",
        )
    return host


def check_place(place: Place, processes: int, experiment: str) -> None:
    """Compare what was started with what the experiment asks for.

    Args:
        place: of this process.
        processes: ``compute.processes``.
        experiment: its name.

    Raises:
        ConfigError: they differ; several processes would otherwise run the same chains over each other.
    """
    if place.num_processes == processes:
        return
    if processes == 1:
        remedy = f"start it once, or set\n    compute:\n      processes: {place.num_processes}"
    else:
        remedy = (
            f"start them here with `--processes 1x{processes}`, on a cluster with a profile for several,"
            f" or set\n    compute:\n      processes: {place.num_processes}"
        )
    raise ConfigError(
        f"experiment '{experiment}': key 'compute.processes': is {processes}, and there are {place.num_processes} processes ({place.told_by})",
        remedy,
    )
