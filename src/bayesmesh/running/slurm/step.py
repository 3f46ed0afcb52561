"""What variables of Slurm say of the step that this process is a task of; a batch script by itself is no step."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bayesmesh.errors import ConfigError

__all__ = ["num_tasks", "whole_number"]


def whole_number(environ: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    """Return what a variable of Slurm counts.

    Args:
        environ: the environment variables.
        name: of the variable.
        default: where it is not set, or empty.
        least: the smallest number that it may be.

    Raises:
        ConfigError: it is no such number.
    """
    text = environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) < least:
        raise ConfigError(f"{name}={text}: is no whole number from {least}", f"start it with srun, or unset {name}")
    return int(text)


def num_tasks(environ: Mapping[str, str]) -> int:
    """Return how many tasks this process's step has; 1 where it is in no step.

    >>> num_tasks({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "8"}), num_tasks({"SLURM_NTASKS": "8"})
    (8, 1)

    Raises:
        ConfigError: a count is no number, or there are several tasks and nothing says on which hosts.
    """
    tasks = whole_number(environ, "SLURM_STEP_NUM_TASKS", 1, least=1)
    # Of the whole job in a batch script; of the step in a task.
    of_job = whole_number(environ, "SLURM_NTASKS", 1, least=1)
    if environ.get("SLURM_STEP_NODELIST"):
        return tasks if environ.get("SLURM_STEP_NUM_TASKS") else of_job
    if tasks > 1:
        raise ConfigError(
            f"SLURM_STEP_NODELIST: is not set, and SLURM_STEP_NUM_TASKS={tasks} is of no use without it",
            "start the processes with srun, which sets both, or unset SLURM_STEP_NUM_TASKS",
        )
    return 1
