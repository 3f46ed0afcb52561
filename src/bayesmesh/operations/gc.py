"""gc: find chains that no configuration uses, and remove them after asking."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bayesmesh.config.versions import DRAWS
from bayesmesh.data.shards import Shards
from bayesmesh.errors import StoreError
from bayesmesh.sampling.loop.identity import chain_identity
from bayesmesh.store.chains.manifests import read_manifest
from bayesmesh.store.chains.markers import read_markers
from bayesmesh.store.layout import group_name
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.records.checked import read_checked
from bayesmesh.store.records.jobs import check_output, read_record, records_of
from bayesmesh.workflow.code import component_code
from bayesmesh.workflow.plan import Plan

_IDENTITY = re.compile(r"^[0-9a-f]{16}$")
_HALF_REMOVED = re.compile(r"^\.[0-9a-f]{16}\.removed\.\d+$")


class Unnamed(NamedTuple):
    """Chains of an identity that no experiment of the configuration has."""

    folder: Path
    num_draws: int
    num_bytes: int
    last_commit: float
    is_of_earlier_version: bool = False


def run(arguments: argparse.Namespace) -> int:
    """Show the chains that no configuration uses, and remove them after asking; return the exit code."""
    found, notes = find_unnamed(Plan())
    for note in notes:
        print(note)
    if not found:
        print(f"every {'other ' if notes else ''}chain is named by the configuration")
        return 0
    print(table(found))
    if not arguments.yes and not sys.stdin.isatty():
        print("nothing removed: answer on a terminal, or give --yes")
        return 0
    if arguments.yes or input("remove them? [y/N] ").strip().lower() in ("y", "yes"):
        for one in found:
            remove(one)
            print(f"{one.folder}: removed")
    return 0


def find_unnamed(plan: Plan) -> tuple[list[Unnamed], list[str]]:
    """Return identities that no configuration uses, and notes on experiments whose identity cannot be computed.

    Chains of an experiment without a configuration are unused, unless a notebook sampled it. An experiment's identity is unknown
    without its data or its audit, or if its file is invalid.
    """
    found, notes = [], []
    for chains in sorted(Path(plan.results).glob("*/chains")):
        name = chains.parent.name
        folders = [p for p in chains.iterdir() if p.is_dir() and not p.is_symlink()]
        identities = [p for p in folders if _IDENTITY.match(p.name)]
        # The remains of an interrupted removal.
        found += [_describe(path) for path in folders if _HALF_REMOVED.match(path.name)]
        named: set[str] = set()
        if name in plan.experiments:
            try:
                named = _identities(plan, name)
            except StoreError as error:
                notes.append(f"{name}: kept, because its identity is unknown: {error.message}")
                continue
        elif file := next((each for each in plan.broken if name == each or name.startswith(f"{each}-")), None):
            # The name of a sweep's member begins with the name of the sweep's file.
            notes.append(f"{name}: kept, because the file of experiment '{file}' is not valid")
            continue
        elif plan.layout(name).settings.exists():
            notes.append(f"{name}: kept, because a notebook sampled it; remove {chains.parent} when it is not needed")
            continue
        found += [_describe(path) for path in sorted(identities) if path.name not in named]
    return found, notes


def _identities(plan: Plan, name: str) -> set[str]:
    """Return the identities of chains sampled with the current configuration: those that continue others, and those that do not.

    Raises:
        StoreError: the data are missing or damaged.
    """
    # Damaged data would have another fingerprint, and good chains would count as unused.
    check_output(Path(plan.results), plan.data_layout(name).sharded)
    job = plan.job("sample", name)
    data = Shards(plan.data_layout(name).shards).fingerprint
    made_from = job.config, component_code(job), data, job.num_chains
    continued = [read_manifest(job.relative_layout.sampled(group_name(0))).identity] if job.relative else []
    return {chain_identity(*made_from, relative) for relative in ("", *continued)}


def _describe(folder: Path) -> Unnamed:
    num_draws, last = 0, 0.0
    for group in folder.glob("group-*"):
        try:
            commits = read_markers(group)
        except StoreError:
            # Damaged chains can be removed as well.
            continue
        num_draws = max([num_draws, *(c.num_draws for c in commits)])
        last = max([last, *(float(c.facts.get("committed_at", 0.0)) for c in commits)])
    try:
        is_earlier = read_checked(folder / "identity.json").get("draws") != DRAWS
    except StoreError:
        is_earlier = False
    return Unnamed(folder, num_draws, _bytes_of(folder), last, is_earlier)


def _bytes_of(folder: Path) -> int:
    """Return the bytes that removing the folder frees; shards shared with a posterior do not count."""
    return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file() and p.lstat().st_nlink == 1)


def table(found: list[Unnamed]) -> str:
    """Return the identities as a text table."""
    lines = [f"{'chains':<44} {'draws':>8} {'frees':>10}  last commit"]
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.last_commit)) if one.last_commit else "never"
        version = "  of an earlier version" if one.is_of_earlier_version else ""
        lines.append(f"{one.folder!s:<44} {one.num_draws:>8} {one.num_bytes / 2**20:>6.1f} MiB  {when}{version}")
    return "\n".join(lines)


def remove(one: Unnamed) -> None:
    """Remove the chains of an identity.

    Raises:
        StoreError: a process is writing the chains; the message names it.
    """
    identity = one.folder.name.strip(".").partition(".")[0]
    aside = one.folder.with_name(f".{identity}.removed.{os.getpid()}")
    with contextlib.ExitStack() as held:
        # Hold all locks until the folder is renamed, so that no process writes to it.
        for group in sorted(path for path in one.folder.glob("group-*") if path.is_dir()):
            held.enter_context(WriterLock(group))
        # Rename first, so that an interruption never leaves half of an identity.
        one.folder.rename(aside)
    for manifest in one.folder.parent.glob("group-*.json"):
        with contextlib.suppress(StoreError):
            if read_checked(manifest).get("identity") == identity:
                manifest.unlink()
    experiment = one.folder.parents[1]
    for path in records_of(experiment.parent, experiment.name):
        with contextlib.suppress(StoreError):
            # Otherwise `verify` would report files removed on purpose.
            if any(f"/chains/{identity}/" in name for name in read_record(path).kept):
                path.unlink()
    shutil.rmtree(aside)
