"""status: who holds a chain group, by its lock; a damaged lock is that of an unknown owner, as it is to a writer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bayesmesh.store.lock import HEARTBEAT_SECONDS, LOCK_NAME, LONGEST_HEARTBEAT, is_process_there, read_owner

__all__ = ["STALE_BEATS", "Writer", "read_writer"]

STALE_BEATS = 6
"""Heartbeats that may be missed; more than a writer allows, for clocks of two machines differ."""


@dataclasses.dataclass(frozen=True)
class Writer:
    """Who holds the group, by `writer.json`.

    Attributes:
        host: its machine; empty when the lock is damaged.
        is_there: whether its process is; None where only its heartbeat can tell, as on another machine.
        last_beat: when it last showed a sign of life, in seconds since the epoch.
        heartbeat_seconds: time between two of them.
    """

    host: str
    is_there: bool | None
    last_beat: float
    heartbeat_seconds: float

    def is_alive(self, now: float) -> bool:
        """Return whether it is at work, at a time in seconds since the epoch."""
        if self.is_there is not None:
            return self.is_there
        return now - self.last_beat < STALE_BEATS * self.heartbeat_seconds


def read_writer(folder: Path) -> Writer | None:
    """Return who holds a chain group; None when nobody does.

    Raises:
        StoreError: what has the lock's name is no file.
        OSError: the lock may not be read.
    """
    path = folder / LOCK_NAME
    try:
        owner, last_beat = read_owner(path), path.stat().st_mtime
    except FileNotFoundError:
        return None
    if owner is None:
        return None
    beat = min(float(owner.get("heartbeat_seconds", HEARTBEAT_SECONDS)), LONGEST_HEARTBEAT)
    return Writer(str(owner.get("host", "")), is_process_there(owner), last_beat, beat)
