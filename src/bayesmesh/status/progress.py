"""status: the progress of a chain group, from the names and the newest facts of its markers.

`ChainStore` is for writers and makes folders; this only looks. A file may vanish between being listed and being read.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.store.lock import HEARTBEAT_SECONDS, LOCK_NAME
from bayesmesh.store.markers import MARKER

__all__ = ["STALE_BEATS", "GroupProgress", "Writer", "current_groups", "read_group"]

STALE_BEATS = 6
"""Heartbeats that may be missed; more than a writer allows, for clocks of two machines differ."""

NEWEST = 8
"""Markers that are opened; the names of the others are enough."""


@dataclasses.dataclass(frozen=True)
class Writer:
    """Who holds the group, by `writer.json`.

    Attributes:
        host: its machine.
        job: its number in Slurm; may be empty.
        last_beat: when it last showed a sign of life, in seconds since the epoch.
        heartbeat_seconds: time between two of them.
    """

    host: str
    job: str
    last_beat: float
    heartbeat_seconds: float

    def is_alive(self, now: float) -> bool:
        return now - self.last_beat < STALE_BEATS * self.heartbeat_seconds


@dataclasses.dataclass(frozen=True)
class GroupProgress:
    """What a chain group has committed.

    Attributes:
        folder: the group's.
        phase: ``warmup`` or ``sample``.
        done: iterations of that phase.
        per_second: iterations per second of the newest segments; None before the first commit.
        commit_seconds: seconds that one of them took; None before the first commit.
        acceptance: mean over the newest commits of the phase; None before the first.
        last_commit: seconds since the epoch; None before the first.
        device: kind of device the group began on.
        host: machine of the last commit.
        writer: who holds it; None when nobody does.
    """

    folder: Path
    phase: str = "warmup"
    done: int = 0
    per_second: float | None = None
    commit_seconds: float | None = None
    acceptance: float | None = None
    last_commit: float | None = None
    device: str = "-"
    host: str = ""
    writer: Writer | None = None


def current_groups(chains: Path, num_groups: int) -> list[Path]:
    """Return the groups of the identity that was written to last; an experiment may have several, one is current.

    Args:
        chains: folder ``results/<experiment>/chains``.
        num_groups: groups of the configuration; an earlier run may have had more.
    """
    newest: dict[Path, float] = {}
    for about in chains.glob("*/group-*/store.json"):
        touched = [_modified(path) for path in (about, about.parent / "commits")]
        identity = about.parent.parent
        newest[identity] = max(newest.get(identity, 0.0), *touched)
    if not newest:
        return []
    identity = max(newest, key=lambda path: newest[path])
    return sorted(path.parent for path in identity.glob("group-*/store.json"))[:num_groups]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def read_group(folder: Path) -> GroupProgress:
    """Return the progress of a group.

    Raises:
        StoreError: one of its files is damaged; names it.
    """
    record = _read(folder / "store.json") or {}
    device = record.get("environment", {}).get("kind", "-")
    group = GroupProgress(folder, device=device, writer=_read_writer(folder / LOCK_NAME))
    markers = [m for path in folder.glob("commits/*.json") if (m := MARKER.match(path.name))]
    if not markers:
        return group
    phase = "sample" if any(m[1] == "sample" for m in markers) else "warmup"
    ordered = sorted((m for m in markers if m[1] == phase), key=lambda m: int(m[2]))
    facts = [f for m in ordered[-NEWEST:] if (f := _facts(folder / "commits" / m[0]))]
    # Medians, so that a slow start does not count.
    timed = [f for f in facts if f["count"] and f["seconds"]]
    each = statistics.median(f["seconds"] / f["count"] for f in timed) if timed else 0.0
    return dataclasses.replace(
        group, phase=phase, done=max(int(m[3]) for m in ordered), per_second=1 / each if each > 0 else None,
        commit_seconds=statistics.median(f["seconds"] for f in timed) if timed else None,
        acceptance=statistics.fmean(f["acceptance"] for f in facts) if facts else None,
        last_commit=facts[-1]["committed_at"] if facts else None, host=facts[-1]["host"] if facts else "",
    )  # fmt: skip


def _facts(path: Path) -> dict[str, Any] | None:
    """The facts of a marker that are shown; None when it is gone by now."""
    marker = _read(path)
    if marker is None:
        return None
    try:
        facts = marker["facts"]
        return {
            **{k: float(facts[k]) for k in ("acceptance", "committed_at")},
            # Stores of the first release do not say them.
            **{k: float(facts.get(k, 0)) for k in ("count", "seconds")},
            "host": str(facts.get("host", "")),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path}: is damaged: {error!r}", "move the chain's folder away, or restore the file"
        ) from error


def _read_writer(path: Path) -> Writer | None:
    content = _read(path)
    if content is None:
        return None
    return Writer(
        str(content.get("host", "?")), str(content.get("job", "")), _modified(path),
        float(content.get("heartbeat_seconds", HEARTBEAT_SECONDS)),
    )  # fmt: skip


def _read(path: Path) -> Mapping[str, Any] | None:
    """A JSON object; None when there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{path}: is damaged: {error}", "restore it, or move its folder away") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path}: is damaged: no JSON object", "restore it, or move its folder away")
    return content
