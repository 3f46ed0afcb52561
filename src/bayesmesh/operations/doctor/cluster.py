"""doctor: Slurm, on a login node or inside a job, and the site's file, which describes its nodes."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bayesmesh.errors import ConfigError
from bayesmesh.operations.doctor.finding import BLOCKS, WARNS, Row, ask
from bayesmesh.sampling.density.ranks import find_rank
from bayesmesh.store.slurm_job import SHOWN
from bayesmesh.workflow.site import Site, check_with_scheduler, load_site
from bayesmesh.workflow.slurm.executor_patch import PLUGIN

PROFILES = {"slurm-cpu": ("cpu", False), "slurm-gpu": ("gpu", False), "slurm-gpu-multinode": ("gpu", True)}
"""Profile -> kind of its nodes, and whether one job takes several; the arguments that each profile passes."""


def check_scheduler(results: Path, environ: Mapping[str, str], config: Path) -> Iterator[Row]:
    """Check the scheduler; a machine without one is fine."""
    yield _processes(environ)
    shown = [f"{name.removeprefix('SLURM_')}={environ[name]}" for name in SHOWN if environ.get(name)]
    yield "job", ", ".join(shown) or "not inside a job"
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        yield "commands", "no sbatch: jobs run on this machine"
        return
    yield _partitions(environ)
    said = ask(["sacct", "--noheader", "--format=JobID", "--starttime=now"], environ)
    works = said is not None and said.returncode == 0
    yield "accounting", "sacct answers" if works else "none; the profiles use squeue, which does not need it"
    if importlib.util.find_spec(PLUGIN) is None:
        remedy = "jobs cannot be submitted: remake the environment from the locks with `make clean-env env`"
        yield "executor", "snakemake-executor-plugin-slurm is not installed", WARNS, remedy
    else:
        yield "executor", "snakemake-executor-plugin-slurm is installed"


def _processes(environ: Mapping[str, str]) -> Row:
    """Return the number of processes per program, determined as in the stages."""
    try:
        rank = find_rank(environ)
    except ConfigError as error:
        return "processes", error.message, BLOCKS, error.remedy
    if rank.num_processes == 1:
        return "processes", "1"
    return "processes", f"process {rank.index} of {rank.num_processes}, who meet at {rank.address}"


def _partitions(environ: Mapping[str, str]) -> Row:
    said = ask(["sinfo", "--noheader", "--format=%R %a %l %G"], environ, 10)
    if said is None or said.returncode:
        reason = said.stderr.strip().splitlines()[-1] if said and said.stderr.strip() else "no answer in 10 s"
        remedy = "the scheduler does not answer: submit from a login node, or run here without a Slurm profile"
        return "partitions", reason, WARNS, remedy
    rows = sorted({" ".join(line.split()) for line in said.stdout.splitlines() if line.strip()})
    return "partitions", "; ".join(rows) or "none"


def check_site(results: Path, environ: Mapping[str, str], config: Path) -> Iterator[Row]:
    """Load the site and test with the scheduler the largest job of each profile; nothing is submitted."""
    try:
        path, site = load_site(environ)
    except ConfigError as error:
        yield "file", error.message, BLOCKS, error.remedy or "correct it; docs/how-to/cluster.md lists all keys"
        return
    yield "file", str(path) if path.exists() else f"no {path}: defaults"
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return
    # In parallel, because a hanging scheduler delays each test until the timeout.
    with ThreadPoolExecutor(len(PROFILES)) as pool:
        refusals = dict(
            zip(PROFILES, pool.map(lambda kind: _refusal(path, site, *kind), PROFILES.values()), strict=True)
        )
    if taken := [name for name, refusal in refusals.items() if refusal is None]:
        yield "profiles", f"the scheduler accepts jobs of {', '.join(taken)}"
    # If the scheduler cannot be reached, report it once for all profiles.
    for message, remedy in {r.message: r.remedy for r in refusals.values() if r}.items():
        names = [name for name, refusal in refusals.items() if refusal and refusal.message == message]
        yield ", ".join(names), message, WARNS, remedy


def _refusal(path: Path, site: Site, kind: str, nodes: bool) -> ConfigError | None:
    """Return the scheduler's objection to the jobs of a profile, None if it accepts them."""
    try:
        check_with_scheduler(path, site, kind, nodes)
    except ConfigError as error:
        return error
    return None
