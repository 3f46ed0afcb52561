"""status: the progress of a chain group, from the names and the newest facts of its markers.

`ChainStore` is for writers and creates folders; this module only reads. A file may vanish between listing and reading.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.operations.status.manifest_facts import Manifest
from bayesmesh.operations.status.writers import Writer, read_writer
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.markers import DAMAGE_REMEDY, MARKER, Facts

__all__ = ["FEWEST_DRAWS", "GroupProgress", "current_groups", "read_group"]

FEWEST_DRAWS = 8
"""Draws per chain from which R-hat is shown."""

NEWEST = 8
"""Number of newest markers to open; of the others the names suffice."""


@dataclasses.dataclass(frozen=True)
class GroupProgress:
    """Committed progress of a chain group.

    Attributes:
        folder: folder of the group.
        phase: ``warmup`` or ``sample``.
        done: iterations of that phase.
        per_second: iterations per second of the newest segments; None before the first commit.
        acceptance: mean over the newest commits of the phase; None before the first.
        last_commit: seconds since the epoch; None before the first.
        device: kind of device on which the group began.
        host: machine of the last commit.
        writer: holder of the lock; None without one.
    """

    folder: Path
    phase: str = "warmup"
    done: int = 0
    per_second: float | None = None
    acceptance: float | None = None
    last_commit: float | None = None
    device: str = "-"
    host: str = ""
    writer: Writer | None = None


def current_groups(chains: Path, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Path]:
    """Return the groups of the current identity: of several, the one that was written last.

    Args:
        chains: folder ``results/<experiment>/chains``.
        names: groups of the configuration; an earlier run may have had more.
        manifests: existing manifests; a run without new commits also writes one.

    Raises:
        OSError: a folder is unreadable, or not a folder.
    """
    newest: dict[str, float] = {}
    for identity in _names_in(chains):
        for folder in (chains / identity / name for name in names):
            if (folder / "store.json").exists():
                touched = [_modified(folder / name) for name in ("store.json", "commits", LOCK_NAME)]
                newest[identity] = max(newest.get(identity, 0.0), *touched)
    for manifest in manifests:
        if manifest.identity in newest:
            newest[manifest.identity] = max(newest[manifest.identity], manifest.written_at)
    if not newest:
        return []
    folder = chains / max(newest, key=lambda identity: newest[identity])
    return [folder / name for name in names if (folder / name / "store.json").exists()]


def _names_in(folder: Path) -> list[str]:
    """List a folder; unlike `glob`, which returns nothing for an unreadable folder, this raises."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def read_group(folder: Path) -> GroupProgress:
    """Return the progress of a group.

    Raises:
        StoreError: a file is damaged.
        OSError: a file is unreadable.
    """
    about = folder / "store.json"
    try:
        device = str((_read(about) or {}).get("environment", {}).get("kind", "-"))
    except AttributeError as error:
        raise StoreError(f"{about}: is damaged: {error}", DAMAGE_REMEDY) from error
    group = GroupProgress(folder, device=device, writer=read_writer(folder))
    markers = [m for name in _names_in(folder / "commits") if (m := MARKER.match(name))]
    if not markers:
        return group
    phase = "sample" if any(m[1] == "sample" for m in markers) else "warmup"
    ordered = sorted((m for m in markers if m[1] == phase), key=lambda m: int(m[2]))
    facts = [f for m in ordered[-NEWEST:] if (f := _facts(folder / "commits" / m[0]))]
    # The median ignores a slow first segment.
    timed = [f for f in facts if f["count"] and f["seconds"]]
    each = statistics.median(f["seconds"] / f["count"] for f in timed) if timed else 0.0
    return dataclasses.replace(
        group, phase=phase, done=max(int(m[3]) for m in ordered), per_second=1 / each if each > 0 else None,
        acceptance=statistics.fmean(accepted) if (accepted := [f["acceptance"] for f in facts if "acceptance" in f]) else None,
        last_commit=facts[-1]["committed_at"] if facts else None, host=facts[-1]["host"] if facts else "",
    )  # fmt: skip


def _facts(path: Path) -> Facts | None:
    """Return the facts of a marker to show; None if the marker has vanished."""
    marker = _read(path)
    if marker is None:
        return None
    try:
        facts = marker["facts"]
        return {
            "committed_at": float(facts["committed_at"]),
            # A kernel without an accept step has none.
            **({"acceptance": float(facts["acceptance"])} if "acceptance" in facts else {}),
            # Stores of the first release lack these.
            "count": int(facts.get("count", 0)),
            "seconds": float(facts.get("seconds", 0)),
            "host": str(facts.get("host", "")),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: is damaged: {error!r}", DAMAGE_REMEDY) from error


def _read(path: Path) -> dict[str, Any] | None:
    """Return a JSON object of the chain group; None if the file does not exist."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{path}: is damaged: {error}", DAMAGE_REMEDY) from error
    if not isinstance(content, dict):
        raise StoreError(f"{path}: is damaged: not a JSON object", DAMAGE_REMEDY)
    return content
