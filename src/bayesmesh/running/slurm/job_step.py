"""Start the step of a Slurm job in which Snakemake runs its stages: ``python -m bayesmesh.running.slurm.job_step OPTION... -- COMMAND``.

By default, the executor starts another Snakemake in the batch script, whose only work is to call srun. This module imports
little, and replaces itself by the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

_OF_OUTER_STEP = ("SLURM_", "SRUN_", "SBATCH_")
_KEPT = {
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST",
}  # fmt: skip
"""Variables that name the job. Others are defaults for srun, which may contradict its options."""


def step_of(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs another one with options of srun; that other command itself if there are none.

    >>> step_of(["--nodes=1", "--", "python", "-m", "snakemake"])
    ['srun', '--nodes=1', 'python', '-m', 'snakemake']
    """
    at = arguments.index("--")
    options, command = arguments[:at], arguments[at + 1 :]
    return ["srun", *options, *command] if options else [*command]


def environment_of_step(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a step, without the variables that describe the batch script."""
    return {name: value for name, value in environ.items() if name in _KEPT or not name.startswith(_OF_OUTER_STEP)}


if __name__ == "__main__":
    command = step_of(sys.argv[1:])
    os.execvpe(command[0], command, environment_of_step(os.environ))  # noqa: S606
