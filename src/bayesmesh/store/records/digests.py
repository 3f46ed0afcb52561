"""Record digests of large inputs, so that planning reads a file only once after it was touched or copied.

A digest is trusted while size, times and inode are unchanged. The time of the last inode change (ctime) is set by the system:
a process that writes to a file, or sets its modification time, cannot set it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file
from bayesmesh.store.records.sealed import read_sealed, write_sealed

NAME = ".known_digests.json"
"""Name of the file, below the folder of seals."""

SETTLED_NS = 3 * 10**9
"""Age in nanoseconds from which a file is recorded: a younger one may change again within one tick of a file system's clock."""

MOST_FILES = 10_000

_FILES = "files"


def is_recorded(folder: Path, path: Path) -> bool:
    """Return whether the record has a digest of a file, even an outdated one."""
    return str(path.absolute()) in _read(folder / NAME)


def known_digest(folder: Path, path: Path) -> str:
    """Return the sha256 of a file, from the record if it is known there, else by reading the file.

    Args:
        folder: folder of the seals, which holds the record. A damaged or unwritable record only costs time.
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
    # A file that changed while it was read has no valid digest yet.
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
