"""Store compiled programs, each bound to its key: damaged or swapped machine code must never be executed."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from bayesmesh.files import atomic_path, read_bytes

ENDING = "-cache"
"""File name suffix of a program, after its key, as in JAX."""

CLAIM = "-claim"
"""File name suffix of the lock that a process holds while it compiles a program."""

LONGEST_WAIT = 600.0
"""Seconds after which a process compiles a program that another one has claimed."""

_DIGEST_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger("bayesmesh")


class ProgramCache:
    """Programs by key, in one folder: the interface of JAX's persistent compilation cache.

    A file ends with the sha256 of its key and its content. Files without it, such as those of earlier versions, are
    not trusted: they are removed, and their programs compiled anew.

    A process that finds no program claims it by a lock, which the system releases when the process ends, and is expected to
    `put` it. Others wait for it, so that jobs that start together compile it once.

    Args:
        folder: existing folder of the files.
        is_waiting: whether to wait for a program that another process compiles. Processes that share one program must not
            wait, because they compile together.
    """

    def __init__(self, folder: Path, is_waiting: Callable[[], bool] = lambda: True) -> None:
        self._path, self._is_waiting = folder, is_waiting
        self._claims = dict[str, int]()

    def get(self, key: str) -> bytes | None:
        """Return the program for a key, or None if there is none and the caller is expected to compile it."""
        found = self._read(key)
        if found is not None or not self._is_waiting():
            return found
        waited_until, is_said = time.monotonic() + LONGEST_WAIT, False
        while not self._claim(key):
            if not is_said:
                _log.info("waits for a program that another process compiles")
                is_said = True
            if time.monotonic() > waited_until:
                return None
            time.sleep(0.05)
            found = self._read(key)
            if found is not None:
                return found
        # It may have been written between the first look and the claim.
        found = self._read(key)
        if found is not None:
            self._release(key)
        return found

    def _claim(self, key: str) -> bool:
        """Try to claim the compilation of a program; succeeds also where the file system has no locks."""
        lock = os.open(self._path / f"{key}{CLAIM}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        except OSError as error:
            _log.info("%s: no locks, so jobs that start together compile alike: %s", self._path, error.strerror)
            os.close(lock)
            return True
        self._claims[key] = lock
        return True

    def _release(self, key: str) -> None:
        lock = self._claims.pop(key, None)
        if lock is not None:
            (self._path / f"{key}{CLAIM}").unlink(missing_ok=True)
            os.close(lock)

    def _read(self, key: str) -> bytes | None:
        path = self._file(key)
        try:
            sealed = read_bytes(path)
        except FileNotFoundError:
            return None
        content = sealed[:-_DIGEST_BYTES]
        if _seal(key, content) == sealed:
            return content
        _log.warning("%s: is damaged, or belongs to another program; it is removed and compiled anew", path)
        path.unlink(missing_ok=True)
        return None

    def put(self, key: str, value: bytes) -> None:
        """Store a program; an existing one is replaced atomically, so that several processes may write it."""
        with atomic_path(self._file(key)) as temporary:
            temporary.write_bytes(_seal(key, value))
        self._release(key)

    def _file(self, key: str) -> Path:
        return self._path / f"{key}{ENDING}"


def _seal(key: str, content: bytes) -> bytes:
    """Return the content followed by the digest of key and content; a key holds no zero byte."""
    return content + hashlib.sha256(key.encode() + b"\0" + content).digest()
