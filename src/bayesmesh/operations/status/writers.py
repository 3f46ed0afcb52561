"""status: read the holder of a chain group from its lock; a damaged lock has an unknown holder, as for a writer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bayesmesh.store.lock import HEARTBEAT_SECONDS, LOCK_NAME, LONGEST_HEARTBEAT, is_process_there, read_owner

__all__ = ["STALE_BEATS", "Writer", "read_writer"]

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
    try:
        owner, last_beat = read_owner(path), path.stat().st_mtime
    except FileNotFoundError:
        return None
    if owner is None:
        return None
    beat = min(float(owner.get("heartbeat_seconds", HEARTBEAT_SECONDS)), LONGEST_HEARTBEAT)
    return Writer(str(owner.get("host", "")), is_process_there(owner), last_beat, beat)
