"""repair: set damaged results aside and let the workflow make them again, with the same values.

Nothing is deleted. Draws are computed anew from the last intact commit, or from the beginning, and are then
bitwise the same.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from bayesmesh.errors import StoreError
from bayesmesh.files import read_bytes
from bayesmesh.operations.verify_files import GROUP, Findings, check
from bayesmesh.store.chains.damage import files_after, resumable
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.records.jobs import record_file
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.plan import Plan

ASIDE = ".damaged"
"""Folder below the results into which damaged files are moved."""


def repair(results: Path, found: Mapping[str, Findings]) -> int:
    """Say what can be made again, make it, and return the exit code.

    Args:
        results: folder of all results.
        found: what is wrong, by owner.
    """
    plan = Plan(results=str(results))
    jobs = [each.job for name in plan.experiments for each in plan.jobs_of(name)]
    aside = results / ASIDE / time.strftime("%Y-%m-%dT%H-%M-%S")
    targets: set[str] = set()
    for owner, findings in found.items():
        wanted = _targets(plan, owner)
        if not wanted:
            print(f"{results / owner}: cannot be made again: {_reason(owner)}")
            continue
        targets |= wanted
        for line in findings.damaged:
            damaged = Path(re.sub(r", line \d+$", "", line.partition(": ")[0]))
            for path in _to_move(damaged, results, owner, jobs):
                if os.path.lexists(path):
                    _move(path, aside / path.relative_to(results))
    if not targets:
        return StoreError.exit_code
    command = ["snakemake", "--cores", "all", *sorted(targets)]
    print(f"made again by: {' '.join(command)}", flush=True)
    code = subprocess.run([sys.executable, "-m", *command], check=False).returncode
    if code == 0 and (results / "index.html").exists():
        # Not a target, because that would run everything that the configuration lists.
        index = ["-m", "bayesmesh.cli", "index", "--code", plan.code_of("report")]
        code = subprocess.run([sys.executable, *index], check=False).returncode
    left = [line for owner in found for line in check(results, owner).wrong]
    print("\n".join([*left, f"{len(left)} damaged or out of date after the repair" if left else "everything is whole"]))
    return code or (StoreError.exit_code if left else 0)


def _targets(plan: Plan, owner: str) -> set[str]:
    """Return the targets of the workflow that make the results of an owner; for data, those of the experiments that have used them."""
    if owner.startswith("data/"):
        users = (name for name in plan.experiments if f"data/{plan.dataset(name)}" == owner)
        return {name for name in users if plan.layout(name).folder.exists()}
    if owner in plan.experiments or owner in plan.sweeps:
        return {owner}
    return set() if owner else {f"{plan.results}/index.html"}


def _reason(owner: str) -> str:
    if owner == "comparisons":
        return "run `bayesmesh compare` again with the experiments of the page"
    return "the configuration requests no such results: run the command that wrote them again, or delete the folder and its records"


def _to_move(path: Path, results: Path, owner: str, jobs: Iterable[Job]) -> list[Path]:
    """Return the files to move so that the workflow makes a damaged file again, except those that it replaces itself."""
    folder = results / owner
    chains, ours = folder / "chains", [job for job in jobs if f"{job.owner}/".startswith(f"{owner}/")]
    if any(path == job.aside for job in ours):
        # It comes back if its job does not run.
        return []
    if path.is_relative_to(folder / "ledger"):
        # The job that runs again states its time, and a sampling job that of the draws that it finds.
        return [path, *(job.record for job in ours if job.name == path.stem)]
    if path.parent == folder / "specs":
        # The job that runs again writes its own, which may be another if a caption or a title has changed.
        return [path, *(job.record for job in ours if job.word == path.stem.rpartition("-")[0])]
    if chains in path.parents and path.parent != chains and path.name != "identity.json":
        return _chains_to_move(chains / path.relative_to(chains).parts[0], path)
    for job in ours:
        for output in job.outputs:
            if output in path.parents:
                # The workflow runs a job without a record, and the job replaces the folder once the new one is complete.
                return [job.record]
            is_replaced = path == output and path.is_dir() and path.suffix in (".zarr", "")
            if is_replaced:
                return []
    return [path]


def _chains_to_move(identity: Path, path: Path) -> list[Path]:
    """Return the files after the last commit from which all processes of a damaged group can continue, and its manifest."""
    match = None if path == identity else GROUP.match(path.relative_to(identity).parts[0])
    if match is None:
        return []
    manifests = [identity.parent / f"{match[1]}.json"]
    experiment = identity.parents[1]
    record = record_file(experiment.parent, experiment.name, f"sample-{match[1]}")
    if not any(identity.name in _text(file) for file in (*manifests, record)):
        print(f"{path}: cannot be made again: these chains are of other settings than the present results")
        return []
    folders = [each for each in sorted(identity.glob(f"{match[1]}*")) if each.is_dir() and GROUP.match(each.name)]
    points = [{commit.name: commit for commit in resumable(folder)} for folder in folders]
    common = [name for name in points[0] if all(name in others for others in points)] if points else []
    if not common or path.name in ("store.json", "zarr.json") or GROUP.match(path.name):
        return [*manifests, *folders]
    later = (files_after(folder, each[common[-1]]) for folder, each in zip(folders, points, strict=True))
    return [*manifests, *itertools.chain(*later), path]


def _text(path: Path) -> str:
    """Return the text of a record, damaged or not; empty if it cannot be read."""
    try:
        return read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _move(path: Path, target: Path) -> None:
    """Move a file or a folder that nobody is writing.

    Raises:
        StoreError: a process is writing the chains.
    """
    group = next((each for each in (path, *path.parents) if GROUP.match(each.name) and each.is_dir()), None)
    # A folder of chains takes its lock along.
    with contextlib.nullcontext() if group is None else WriterLock(group):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    print(f"{path}: moved to {target}")
