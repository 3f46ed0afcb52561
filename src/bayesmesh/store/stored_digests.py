"""Remember digests of large inputs, so that planning reads a file once after it was touched or copied, and not each time.

A digest is believed while size, times and inode are what they were. The time of the last change of the inode belongs to
the system: whoever writes to a file, or sets its other time, cannot set that one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file
from bayesmesh.store.sealed import read_sealed, write_sealed

NAME = ".known_digests.json"
"""Name of the file, below the folder of seals."""

SETTLED_NS = 3 * 10**9
"""Age from which a file is remembered: a younger one may change again within one tick of a file system's clock."""

MOST_FILES = 10_000

_FILES = "files"


def is_recorded(folder: Path, path: Path) -> bool:
    """Return whether the record has any digest of a file, be it outdated."""
    return str(path.absolute()) in _read(folder / NAME)


def known_digest(folder: Path, path: Path) -> str:
    """Return the sha256 of a file, from the record where it is known there, else by reading it.

    Args:
        folder: folder of the seals, where the record lies. A damaged or unwritable record costs time alone.
        path: the file.

    Raises:
        OSError: the file cannot be read.
    """
    found = _read(folder / NAME).get(str(path.absolute()))
    if found is not None and found[:-1] == _about(path.stat()):
        return str(found[-1])
    return fresh_digest(folder, path)


def fresh_digest(folder: Path, path: Path) -> str:
    """Return the sha256 of a file after reading it, and record it unless the file is too young.

    Raises:
        OSError: the file cannot be read.
    """
    record, name = folder / NAME, str(path.absolute())
    about, digest = _about(path.stat()), hash_file(path)
    is_settled = time.time_ns() - max(about[1:3]) > SETTLED_NS
    # A file that changed while it was read has no digest yet.
    if is_settled and _about(path.stat()) == about and os.access(folder, os.W_OK):
        known = _read(record)
        known.pop(name, None)
        kept = [*known.items()][-MOST_FILES + 1 :]
        write_sealed(record, {_FILES: {**dict(kept), name: [*about, digest]}})
    return digest


def _about(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _read(record: Path) -> dict[str, list[int | str]]:
    if not record.exists():
        return {}
    try:
        known: dict[str, list[int | str]] = read_sealed(record, must_have_digest=True)[_FILES]
    except (StoreError, KeyError):
        return {}
    return known
