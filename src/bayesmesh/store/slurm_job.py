"""Read the job, this process's job step and its task from SLURM_* variables; a batch script by itself is not a step."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bayesmesh.errors import ConfigError

GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
"""Variables that name or count the GPUs of a job."""

SHOWN = (
    "SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_GPUS",
    "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE", "SLURM_RESTART_COUNT",
)  # fmt: skip
"""Variables to show; no others are printed, because an environment may contain secrets."""

WITH_SRUN = "start the processes with srun"
"""Beginning of a remedy for variables that srun sets."""


def job_id(environ: Mapping[str, str]) -> str:
    """Return the number of the job; empty outside a job."""
    return environ.get("SLURM_JOB_ID", "")


def owns_its_step(environ: Mapping[str, str]) -> bool:
    """Return whether this process is in a step, and so owns the resources that srun gave it."""
    return bool(environ.get("SLURM_STEP_NODELIST"))


def integer(environ: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    """Return the integer value of a Slurm variable, `default` if it is unset or empty.

    Raises:
        ConfigError: the value is not an integer of at least `least`.
    """
    text = environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) < least:
        remedy = f"start it with srun, or unset {name}"
        raise ConfigError(f"{name}={text}: not an integer of at least {least}", remedy)
    return int(text)


def num_tasks(environ: Mapping[str, str]) -> int:
    """Return the number of tasks in this process's step; 1 outside a step.

    >>> num_tasks({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "8"}), num_tasks({"SLURM_NTASKS": "8"})
    (8, 1)

    Raises:
        ConfigError: a count is invalid, or there are several tasks without a list of hosts.
    """
    tasks = integer(environ, "SLURM_STEP_NUM_TASKS", 1, least=1)
    # SLURM_NTASKS counts the tasks of the job in a batch script, and of the step in a task.
    of_job = integer(environ, "SLURM_NTASKS", 1, least=1)
    if owns_its_step(environ):
        return tasks if environ.get("SLURM_STEP_NUM_TASKS") else of_job
    if tasks > 1:
        message = f"SLURM_STEP_NODELIST: not set, but SLURM_STEP_NUM_TASKS={tasks} needs it"
        raise ConfigError(message, f"{WITH_SRUN}, which sets both, or unset SLURM_STEP_NUM_TASKS")
    return 1


def first_host(hosts: str) -> str:
    """Return the first host of a Slurm host list.

    >>> first_host("gpu[003-010,12],cpu1"), first_host("n1,n2")
    ('gpu003', 'n1')

    Raises:
        ConfigError: the text is not a host list.
    """
    host = re.sub(r"\[(\d+)[-,\d]*\]", r"\1", re.split(r",(?![^[]*\])", hosts)[0])
    if not re.fullmatch(r"\w([\w.-]*\w)?", host, re.ASCII):
        message = f"SLURM_STEP_NODELIST={hosts}: not a Slurm host list"
        raise ConfigError(message, f"{WITH_SRUN}, which sets it, or unset it")
    return host


def job_memory(environ: Mapping[str, str]) -> int | None:
    """Return the bytes that the job requested on this node, enforced or not; None outside a job.

    Raises:
        ConfigError: a variable is not a number.
    """
    if not job_id(environ):
        return None
    per_node = integer(environ, "SLURM_MEM_PER_NODE", 0)
    per_cpu = integer(environ, "SLURM_MEM_PER_CPU", 0) * integer(environ, "SLURM_CPUS_ON_NODE", 1)
    # 0 means all memory of the node.
    return (per_node or per_cpu) * 2**20 or None
