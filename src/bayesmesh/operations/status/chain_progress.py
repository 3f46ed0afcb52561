"""status: the progress of a chain group, from its lock and the names and newest facts of its markers.

`ChainStore` is for writers and creates folders; this module only reads. A file may vanish between listing and reading.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.store.lock import HEARTBEAT_SECONDS, LOCK_NAME, LONGEST_HEARTBEAT, is_process_there, read_owner
from bayesmesh.store.markers import DAMAGE_REMEDY, MARKER, Facts

FEWEST_DRAWS = 8
"""Draws per chain from which R-hat is shown."""

NEWEST = 8
"""Number of newest markers to open; of the others the names suffice."""

STALE_BEATS = 6
"""Heartbeats that may be missed; more than a writer allows, because clocks of two machines differ."""


@dataclasses.dataclass(frozen=True)
class Writer:
    """Holder of a chain group, from `writer.json`.

    Attributes:
        host: its machine; empty if the lock is damaged.
        is_running: whether its process exists; None if only the heartbeat can tell, as on another machine.
        last_beat: time of its last heartbeat, in seconds since the epoch.
        heartbeat_seconds: interval between heartbeats.
    """

    host: str
    is_running: bool | None
    last_beat: float
    heartbeat_seconds: float

    def is_alive(self, now: float) -> bool:
        """Return whether the holder is at work at `now`, in seconds since the epoch."""
        if self.is_running is not None:
            return self.is_running
        return now - self.last_beat < STALE_BEATS * self.heartbeat_seconds


def read_writer(folder: Path) -> Writer | None:
    """Return the holder of a chain group; None without a lock.

    Raises:
        StoreError: the lock is not a file.
        OSError: the lock is unreadable.
    """
    path = folder / LOCK_NAME
    last_beat = _modified(path)
    if not last_beat or (owner := read_owner(path)) is None:
        return None
    beat = min(float(owner.get("heartbeat_seconds", HEARTBEAT_SECONDS)), LONGEST_HEARTBEAT)
    return Writer(str(owner.get("host", "")), is_process_there(owner), last_beat, beat)


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


def current_groups(chains: Path, names: Sequence[str], written_at: Mapping[str, float]) -> list[Path]:
    """Return the groups of the current identity: of several, the one that was written last.

    Args:
        chains: folder ``results/<experiment>/chains``.
        names: groups of the configuration; an earlier run may have had more.
        written_at: identity -> time of its newest manifest, which a run without new commits also writes.

    Raises:
        OSError: a folder is unreadable, or not a folder.
    """
    begun = {
        identity: [folder for name in names if ((folder := chains / identity / name) / "store.json").exists()]
        for identity in _names_in(chains)
    }

    def newest(identity: str) -> float:
        files = [folder / name for folder in begun[identity] for name in ("store.json", "commits", LOCK_NAME)]
        return max(written_at.get(identity, 0.0), *map(_modified, files))

    return begun[max(filter(begun.get, begun), key=newest)] if any(begun.values()) else []


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
