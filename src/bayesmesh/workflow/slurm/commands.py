"""Build the command with which srun starts processes, and ask sbatch whether it would accept a job."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from bayesmesh.errors import ConfigError
from bayesmesh.workflow.arguments import command_of

TIMEOUT_SECONDS = 15.0
"""Time limit of sbatch."""

_ON_LOGIN_NODE = "start Snakemake on a login node of the cluster; on one machine leave --profile out"

_UNREACHABLE = re.compile(
    "unable to contact slurm controller|establish a? ?configuration source|unknown host", re.IGNORECASE
)


def srun_command(arguments: Sequence[str], nodes: int, each: int, gpus: int, *, in_step: bool = False) -> list[str]:
    """Return the command that starts `nodes` x `each` processes, with one GPU each if the job has GPUs.

    Args:
        arguments: of ``bayesmesh``.
        nodes: nodes of the job.
        each: processes on each node.
        gpus: GPUs of the job.
        in_step: whether this process is itself in a step, whose resources the new step must share.
    """
    return [
        "srun", f"--nodes={nodes}", f"--ntasks={nodes * each}", f"--ntasks-per-node={each}",
        # No MPI: JAX finds the processes through Slurm's variables. If one fails, all end.
        "--mpi=none", "--kill-on-bad-exit=1", *(["--gpus-per-task=1"] if gpus else []),
        *(["--overlap"] if in_step else []),
        *command_of(arguments),
    ]  # fmt: skip


def test_only_command(options: Sequence[str]) -> list[str]:
    """Return the command that asks whether a job with these options would be accepted."""
    return ["sbatch", "--test-only", *options, "--wrap=true"]


def refusal(options: Sequence[str]) -> tuple[str, str] | None:
    """Return the reason why sbatch would refuse a job, and its whole output; None if it would accept the job.

    Args:
        options: of sbatch.

    Raises:
        ConfigError: there is no sbatch, or the scheduler does not answer.
    """
    try:
        done = subprocess.run(
            test_only_command(options), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise ConfigError("there is no sbatch here, and the profile submits jobs", _ON_LOGIN_NODE) from error
    except subprocess.TimeoutExpired as error:
        message = f"sbatch did not answer in {TIMEOUT_SECONDS:.0f} s"
        raise ConfigError(message, "see with `sinfo` whether the scheduler is up") from error
    if not done.returncode:
        return None
    every = [line for line in done.stderr.splitlines() if line.strip()]
    # A site may print a banner before the lines of sbatch itself.
    lines = [line for line in every if re.match("sbatch: |allocation failure", line)] or every
    if silent := next((line for line in lines if _UNREACHABLE.search(line)), None):
        raise ConfigError(f"the scheduler cannot be reached: {silent}", _ON_LOGIN_NODE)
    said = next((line for line in lines if "error" in line), lines[-1] if lines else "no reason given")
    return re.sub(r"^(sbatch|allocation failure): (error: )?", "", said), " ".join(lines)
