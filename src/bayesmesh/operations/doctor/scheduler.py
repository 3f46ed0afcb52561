"""doctor: check Slurm, on a login node or inside a job."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.errors import ConfigError
from bayesmesh.operations.doctor.finding import BLOCKS, WARNS, Finding, ask
from bayesmesh.running.process_rank import find_rank
from bayesmesh.running.slurm.executor_patch import PLUGIN
from bayesmesh.running.slurm.variables import SHOWN

__all__ = ["check"]

GROUP = "Slurm"


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Check the scheduler; a machine without one is fine."""
    shown = [f"{name.removeprefix('SLURM_')}={environ[name]}" for name in SHOWN if environ.get(name)]
    findings = [_processes(environ)]
    findings.append(Finding(GROUP, "job", ", ".join(shown) if shown else "not inside a job"))
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return [*findings, Finding(GROUP, "commands", "no sbatch: jobs run on this machine")]
    return [*findings, _partitions(environ), _accounting(environ), _plugin()]


def _processes(environ: Mapping[str, str]) -> Finding:
    """Return the number of processes per program, determined as in the stages."""
    try:
        rank = find_rank(environ)
    except ConfigError as error:
        return Finding(GROUP, "processes", error.message, BLOCKS, error.remedy)
    if rank.num_processes == 1:
        return Finding(GROUP, "processes", "1")
    return Finding(GROUP, "processes", f"process {rank.index} of {rank.num_processes}, who meet at {rank.address}")


def _partitions(environ: Mapping[str, str]) -> Finding:
    said = ask(["sinfo", "--noheader", "--format=%R %a %l %G"], environ, 10)
    if said is None or said.returncode:
        reason = said.stderr.strip().splitlines()[-1] if said and said.stderr.strip() else "no answer in 10 s"
        return Finding(
            GROUP, "partitions", reason, WARNS,
            "the scheduler does not answer: submit from a login node, or run here without a Slurm profile",
        )  # fmt: skip
    rows = sorted({" ".join(line.split()) for line in said.stdout.splitlines() if line.strip()})
    return Finding(GROUP, "partitions", "; ".join(rows) or "none")


def _accounting(environ: Mapping[str, str]) -> Finding:
    said = ask(["sacct", "--noheader", "--format=JobID", "--starttime=now"], environ)
    works = said is not None and said.returncode == 0
    return Finding(
        GROUP, "accounting", "sacct answers" if works else "none; the profiles use squeue, which does not need it"
    )


def _plugin() -> Finding:
    if importlib.util.find_spec(PLUGIN) is None:
        return Finding(
            GROUP, "executor", "snakemake-executor-plugin-slurm is not installed", WARNS,
            "jobs cannot be submitted: remake the environment from the locks with `make clean-env env`",
        )  # fmt: skip
    return Finding(GROUP, "executor", "snakemake-executor-plugin-slurm is installed")
