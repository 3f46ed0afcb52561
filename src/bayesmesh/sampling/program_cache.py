"""Store compiled programs, each bound to its key: machine code that is damaged or swapped must never be executed."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bayesmesh.files import atomic_path, read_bytes

ENDING = "-cache"
"""Ending of the file of a program, behind its key; as JAX names them."""

CLAIM = "-claim"
"""Ending of the file that a process locks while it compiles a program."""

LONGEST_WAIT = 600.0
"""Seconds after which a process compiles a program itself that another one has claimed."""

_DIGEST_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger("bayesmesh")


class ProgramCache:
    """Programs by key, in one folder: the interface of JAX's persistent compilation cache.

    A file ends with the sha256 of its key and its content. Files without it, such as those of earlier versions, are
    not trusted: they are removed, and their programs compiled anew.

    Whoever finds no program claims it by a lock, which the system takes back when the process ends, and is expected to
    `put` it. Others wait for it, so that jobs which start together compile it once.

    Args:
        folder: of the files; exists.
        is_waiting: whether to wait for a program that another process compiles. Processes of one program must not: they
            compile together.
    """

    def __init__(self, folder: Path, is_waiting: Callable[[], bool] = lambda: True) -> None:
        self._path, self._is_waiting = folder, is_waiting
        self._claims = dict[str, int]()
        self._asked = threading.local()

    @property
    def asked(self) -> str | None:
        """The key that this thread has asked for last; None since `forget_asked`."""
        return getattr(self._asked, "key", None)

    def forget_asked(self) -> None:
        """Forget which key this thread has asked for."""
        self._asked.key = None

    def find(self, key: str) -> bytes | None:
        """Return a program, None if there is none that belongs to the key; nobody is expected to compile it."""
        return self._read(key)

    def get(self, key: str) -> bytes | None:
        """Return a program, None if there is none that belongs to the key and the caller is to compile it."""
        self._asked.key = key
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
        """Try to become the one who compiles a program; also where the file system has no locks."""
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
        """Store a program; one that is there already is replaced whole, so that several processes may write it."""
        with atomic_path(self._file(key)) as temporary:
            temporary.write_bytes(_seal(key, value))
        self._release(key)

    def _file(self, key: str) -> Path:
        return self._path / f"{key}{ENDING}"


def _seal(key: str, content: bytes) -> bytes:
    """Return the content followed by the digest of key and content; a key holds no zero byte."""
    return content + hashlib.sha256(key.encode() + b"\0" + content).digest()
