"""status: the progress of a chain group, from the names and the newest facts of its markers.

`ChainStore` is for writers and makes folders; this only looks. A file may vanish between being listed and being read.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError

__all__ = ["STALE_SECONDS", "GroupProgress", "Writer", "current_groups", "read_group"]

STALE_SECONDS = 180.0
"""Age of a heartbeat from which its writer is taken for dead, unless it says itself how often it beats."""

NEWEST = 8
"""Markers that are opened; the names of the others are enough."""

_MARKER = re.compile(r"^(warmup|sample)-(\d{9})-(\d{9})\.json$")


@dataclasses.dataclass(frozen=True)
class Writer:
    """Who holds the group, by `writer.json`."""

    host: str
    heartbeat: float

    def is_alive(self, now: float) -> bool:
        return now - self.heartbeat < STALE_SECONDS


@dataclasses.dataclass(frozen=True)
class GroupProgress:
    """What a chain group has committed.

    Attributes:
        folder: the group's.
        phase: ``warmup`` or ``sample``.
        done: iterations of that phase.
        per_second: iterations per second between the newest commits; None before the second one.
        commit_seconds: seconds from one of the newest commits to the next; None before the second one.
        acceptance: mean over the newest commits of the phase; None before the first.
        last_commit: seconds since the epoch; None before the first.
        device: kind of device the group began on.
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
    group = GroupProgress(folder, device=device, writer=_read_writer(folder / "writer.json"))
    markers = [m for path in folder.glob("commits/*.json") if (m := _MARKER.match(path.name))]
    if not markers:
        return group
    phase = "sample" if any(m[1] == "sample" for m in markers) else "warmup"
    ordered = sorted((m for m in markers if m[1] == phase), key=lambda m: int(m[2]))
    facts = [f for m in ordered[-NEWEST:] if (f := _facts(folder / "commits" / m[0], int(m[3])))]
    # Medians, so that a pause between two jobs does not count.
    gaps = [(b["committed_at"] - a["committed_at"], b["count"]) for a, b in itertools.pairwise(facts)]
    each = statistics.median(seconds / count for seconds, count in gaps) if gaps else 0.0
    return dataclasses.replace(
        group, phase=phase, done=max(int(m[3]) for m in ordered), per_second=1 / each if each > 0 else None,
        commit_seconds=statistics.median(seconds for seconds, _ in gaps) if gaps else None,
        acceptance=statistics.fmean(f["acceptance"] for f in facts) if facts else None,
        last_commit=facts[-1]["committed_at"] if facts else None,
    )  # fmt: skip


def _facts(path: Path, stop: int) -> dict[str, float] | None:
    """The facts of a marker, with the number of iterations that they are about; None when it is gone by now."""
    marker = _read(path)
    if marker is None:
        return None
    try:
        facts = marker["facts"]
        count = stop - int(facts["first_new"])
        return {"count": count, **{k: float(facts[k]) for k in ("acceptance", "committed_at")}}
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path}: is damaged: {error!r}", "move the chain's folder away, or restore the file"
        ) from error


def _read_writer(path: Path) -> Writer | None:
    content = _read(path)
    if content is None:
        return None
    heartbeat = content.get("heartbeat")
    return Writer(
        str(content.get("host", "?")), float(heartbeat) if isinstance(heartbeat, (int, float)) else _modified(path)
    )


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
