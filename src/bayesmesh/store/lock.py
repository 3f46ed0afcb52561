"""Allow one writer per chain group, with a lock file that names its owner and a heartbeat.

Creating a hard link takes the lock: only one process succeeds, even on network file systems. Clocks of different
machines are never compared. An owner on this machine is looked up by its process id; an owner elsewhere is observed for
three heartbeats. A process that lost its lock notices before its next commit.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.files import read_bytes, write_json_once
from bayesmesh.store.slurm_job import job_id

HEARTBEAT_SECONDS = 5.0
LONGEST_HEARTBEAT = 20.0
"""Upper limit in seconds, whatever a lock says; the longest wait is three heartbeats."""

STALE_BEATS = 6
"""Missed heartbeats that a reader tolerates; more than a writer does, because clocks of two machines differ."""

LOCK_NAME = "writer.json"

_log = logging.getLogger("bayesmesh")


Owner = dict[str, Any]
"""The content of a lock: a process, and how to determine whether it still runs.

Keys:
    host, user, pid: host, user and id of the process.
    started_ticks: start of the process, in clock ticks since boot; unique together with `pid`.
    boot, process_space: boot and PID namespace in which `pid` is valid.
    job: Slurm job, empty outside Slurm.
    token: random name of this lock.
    heartbeat_seconds: interval between heartbeats.
"""


class WriterLock:
    """Hold the lock of a folder, as a context manager.

    Args:
        folder: folder of the chain group; created if necessary.
        heartbeat_seconds: interval between heartbeats.
        give_up: called while waiting for another owner's heartbeat; raises to end the wait.
        name: file of the lock, where a folder has several.

    Raises:
        StoreError: on entering, if another process holds the lock; the message names it.
    """

    def __init__(
        self, folder: Path, heartbeat_seconds: float = HEARTBEAT_SECONDS, give_up: Callable[[], None] = lambda: None,
        *, name: str = LOCK_NAME,
    ) -> None:  # fmt: skip
        self.path, self._heartbeat_seconds, self._give_up = folder / name, heartbeat_seconds, give_up
        self._what = folder if name == LOCK_NAME else self.path
        self._token, self._stop = secrets.token_hex(8), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> WriterLock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise StoreError(f"{self.path.parent}: a link or a file, not a folder", "move it away") from error
        about = {**this_process(), "token": self._token, "heartbeat_seconds": self._heartbeat_seconds}
        while not write_json_once(self.path, about):
            if (owner := read_owner(self.path)) is None:
                # The lock vanished in between: its owner has finished.
                continue
            if self._is_alive(owner):
                wait, stop = "wait until it has finished, or stop it", _stop_command(owner)
                raise StoreError(
                    f"{self._what}: is being written by {owner_name(owner)}", f"{wait}{stop}", may_pass=True
                )
            _log.warning("%s: taking over the lock of %s, which has died", self._what, owner_name(owner))
            self._set_aside(owner)
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._is_ours():
            self.path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise unless this process still holds the lock.

        Raises:
            StoreError: another process took the lock while this one was suspended or cut off.
        """
        if not self._is_ours():
            remedy = "another job has taken over; stop one of the two"
            raise StoreError(f"{self.path}: this process no longer holds the lock", remedy, may_pass=True)

    def _is_ours(self) -> bool:
        return (read_owner(self.path) or {}).get("token") == self._token

    def _set_aside(self, owner: Owner) -> None:
        """Remove the lock of a dead owner, but not a new lock that another process has taken since."""
        aside = self.path.with_name(f".{self.path.name}.{self._token}.stale")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            if read_owner(aside) != owner:
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self.path)
            aside.unlink()

    def _is_alive(self, owner: Owner) -> bool:
        """Return whether the owner is alive, by its process if visible, else by its heartbeat."""
        if (is_there := is_process_there(owner)) is not None:
            return is_there
        patience = 3 * min(float(owner.get("heartbeat_seconds", self._heartbeat_seconds)), LONGEST_HEARTBEAT)
        _log.info("%s: waiting %.0f s for a heartbeat of %s", self.path, patience, owner_name(owner))
        first, until = self._last_beat(), time.monotonic() + patience
        while time.monotonic() < until:
            self._give_up()
            time.sleep(min(0.5, patience / 10))
            if self._last_beat() != first:
                return True
        return False

    def _last_beat(self) -> int:
        try:
            return self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return -1

    def _beat(self) -> None:
        while not self._stop.wait(self._heartbeat_seconds):
            try:
                if self._is_ours():
                    os.utime(self.path)
            except OSError as error:
                _log.warning("%s: the heartbeat failed: %s", self.path, error)


def is_process_there(owner: Owner) -> bool | None:
    """Return whether an owner's process still runs; None if it cannot be looked up from here."""
    here = this_process()
    # Containers and clones may share a host name, so a process is looked up only within the same boot and PID namespace.
    is_in_sight = all(owner.get(name) == here[name] for name in ("host", "boot", "process_space"))
    if not is_in_sight or not owner.get("started_ticks"):
        return None
    return _start_of(owner["pid"]) == owner["started_ticks"]


def is_at_work(owner: Owner, last_beat: float, now: float) -> bool:
    """Return whether the holder of a lock is at work, without waiting for it.

    Args:
        owner: the content of the lock.
        last_beat: time of its last heartbeat, in seconds since the epoch.
        now: the present time, likewise.
    """
    # On another machine, only the heartbeat tells.
    if (is_running := is_process_there(owner)) is not None:
        return is_running
    beat = min(float(owner.get("heartbeat_seconds", HEARTBEAT_SECONDS)), LONGEST_HEARTBEAT)
    # A heartbeat far in the future counts as old: it is from before a clock was set back.
    return abs(now - last_beat) < STALE_BEATS * beat


def describe_writer(path: Path) -> str:
    """Return a text that names the holder of a lock; empty if nobody is at work.

    Raises:
        StoreError: there is a folder in its place.
        OSError: the lock cannot be read.
    """
    # A job that ends between the two calls removes its lock.
    with contextlib.suppress(FileNotFoundError):
        owner = read_owner(path)
        if owner is not None and is_at_work(owner, path.stat().st_mtime, time.time()):
            return f"is being written by {owner_name(owner)}"
    return ""


def read_owner(path: Path) -> Owner | None:
    """Return the owner of a lock, None without a lock; empty for a damaged lock, of which only the heartbeat is known.

    Read errors propagate, because they do not show that the owner is dead.
    """
    try:
        owner: Owner = json.loads(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise StoreError(f"{path}: a folder, not a lock", "move it away") from error
    except (ValueError, RecursionError):
        return {}
    types = {"pid": int, "token": str, "heartbeat_seconds": int | float}
    is_whole = isinstance(owner, dict) and all(isinstance(owner.get(key), kind) for key, kind in types.items())
    return owner if is_whole else {}


def this_process() -> Owner:
    """Return this process as an owner, without token and heartbeat."""
    return {
        "host": socket.gethostname(),
        "user": _user(),
        "pid": os.getpid(),
        "started_ticks": _start_of(os.getpid()),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "process_space": _read("/proc/self/ns/pid"),
        "job": job_id(os.environ),
    }


def _user() -> str:
    """Return the user's name, or the user id if there is no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _start_of(pid: int) -> str:
    """Return the start of a process, in clock ticks since boot; empty if it does not run or is a zombie.

    Process ids are reused; id and start together identify a process.
    """
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return "" if not fields or fields[0] in ("Z", "X") else fields[19]


def _read(path: str) -> str:
    """Return the text of a file, or the target of a link; empty if it cannot be read."""
    try:
        return os.readlink(path) if os.path.islink(path) else Path(path).read_text("ascii", "replace").strip()
    except OSError:
        return ""


def owner_name(owner: Owner) -> str:
    """Return the name of an owner for messages."""
    if not owner:
        return "an unknown owner"
    job = f", job {owner['job']}" if owner.get("job") else ""
    return f"process {owner.get('pid')} of {owner.get('user')} on {owner.get('host')}{job}"


def _stop_command(owner: Owner) -> str:
    """Return the command that stops an owner, after a colon; empty for an unknown owner."""
    if job := owner.get("job"):
        return f": scancel {job}"
    return f": kill {owner.get('pid')} on {owner.get('host')}" if owner else ""
