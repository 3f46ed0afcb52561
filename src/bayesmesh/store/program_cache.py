"""Store compiled programs, each bound to its key: machine code that is damaged or swapped must never be executed."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from bayesmesh.files import atomic_path, read_bytes

ENDING = "-cache"
"""Ending of the file of a program, behind its key; as JAX names them."""

_DIGEST_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger("bayesmesh")


class ProgramCache:
    """Programs by key, in one folder: the interface of JAX's persistent compilation cache.

    A file ends with the sha256 of its key and its content. Files without it, such as those of earlier versions, are
    not trusted: they are removed, and their programs compiled anew.

    Args:
        folder: of the files; exists.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder

    def get(self, key: str) -> bytes | None:
        """Return a program, None if there is none that belongs to the key."""
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

    def _file(self, key: str) -> Path:
        return self._path / f"{key}{ENDING}"


def _seal(key: str, content: bytes) -> bytes:
    """Return the content followed by the digest of key and content; a key holds no zero byte."""
    return content + hashlib.sha256(key.encode() + b"\0" + content).digest()
