"""Read this process's job step from SLURM_* variables; a batch script by itself is not a step."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bayesmesh.errors import ConfigError

__all__ = ["num_tasks", "whole_number"]


def whole_number(environ: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    """Return the integer value of a Slurm variable.

    Args:
        environ: the environment variables.
        name: name of the variable.
        default: value if the variable is unset or empty.
        least: smallest valid value.

    Raises:
        ConfigError: the value is not an integer of at least `least`.
    """
    text = environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) < least:
        raise ConfigError(
            f"{name}={text}: is not an integer of at least {least}", f"start it with srun, or unset {name}"
        )
    return int(text)


def num_tasks(environ: Mapping[str, str]) -> int:
    """Return the number of tasks in this process's step; 1 outside a step.

    >>> num_tasks({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "8"}), num_tasks({"SLURM_NTASKS": "8"})
    (8, 1)

    Raises:
        ConfigError: a count is invalid, or there are several tasks without a list of hosts.
    """
    tasks = whole_number(environ, "SLURM_STEP_NUM_TASKS", 1, least=1)
    # SLURM_NTASKS counts the tasks of the job in a batch script, and of the step in a task.
    of_job = whole_number(environ, "SLURM_NTASKS", 1, least=1)
    if environ.get("SLURM_STEP_NODELIST"):
        return tasks if environ.get("SLURM_STEP_NUM_TASKS") else of_job
    if tasks > 1:
        raise ConfigError(
            f"SLURM_STEP_NODELIST: is not set, but SLURM_STEP_NUM_TASKS={tasks} needs it",
            "start the processes with srun, which sets both, or unset SLURM_STEP_NUM_TASKS",
        )
    return 1
