"""Write files and folders atomically and durably."""

from __future__ import annotations

import collections
import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError

type JSON = Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None
"""A value that JSON can hold."""

MISSING_REMEDY = (
    "run the stage that writes it, or let `snakemake --cores all EXPERIMENT` run every stage whose results are missing"
)


_FLUSHED_TOGETHER = 16


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[Path]) -> None:
    """Flush files and folders to the disk, in no particular order, several at once: a disk serves many requests in the time of one."""
    # Most commands flush nothing.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_FLUSHED_TOGETHER) as pool:
        collections.deque(pool.map(sync, paths), maxlen=0)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file beside `path`; flush and rename it on success, remove it on failure.

    Its permissions follow the umask, like those of any new file.

    Raises:
        StoreError: `path` is not a regular file, or its folder takes no files, as in ``/proc``.
    """
    if path.exists() and not path.is_file():
        raise StoreError(f"{path}: a folder, a pipe or a device, not a file", "choose another path, or move it away")
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no file can be written in this folder", "choose another folder") from error
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        # Errors of a full disk come from write() and name no file.
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """Return a new name beside `path`; a killed writer leaves the file, whose suffix tells readers that it is incomplete."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; on success it replaces an earlier folder, on failure that one stays.

    Temporary names are fixed, so the remains of an interrupted writer are removed first. The old folder is renamed before
    it is removed, so `path` never holds a part of it.

    Raises:
        StoreError: `path` is a link or a file.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise StoreError(f"{path}: a link or a file, not a folder", "move it away and run the stage again")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = path.with_name(path.name + ".partial"), path.with_name(path.name + ".old")
    for left in (temporary, old):
        if left.is_symlink() or left.is_file():
            left.unlink()
        elif left.exists():
            shutil.rmtree(left)
    temporary.mkdir()
    yield temporary
    sync_all(Path(parent, name) for parent, _, files in os.walk(temporary) for name in (*files, ""))
    if path.exists():
        path.replace(old)
    temporary.replace(path)
    sync(path.parent)
    if old.exists():
        shutil.rmtree(old)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; bytes of a file name that are not UTF-8 are written as escapes, which JSON reads back."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(_encode(text))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, value: object) -> None:
    """Write strict JSON with sorted keys atomically.

    Raises:
        ValueError: the value contains NaN or infinity, which JSON cannot represent.
    """
    write_text(path, _render(value))


def _render(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def is_as_written(path: Path) -> bool:
    """Return whether a file is exactly what `write_json` writes for its content, including blanks."""
    written = read_bytes(path)
    return written == _encode(_render(json.loads(written)))


def write_json_once(path: Path, value: object) -> bool:
    """Write JSON unless the file exists; return whether it was written.

    Creating a hard link fails if the name exists, so exactly one of several processes succeeds, also on network file systems.
    """
    temporary = _temporary(path)
    try:
        write_json(temporary, value)
        try:
            os.link(temporary, path)
            is_new = True
        except FileExistsError:
            is_new = False
    finally:
        temporary.unlink(missing_ok=True)
    # Also if it exists: the process that made it may have been killed before this.
    sync(path.parent)
    return is_new


def read_json(path: Path, remedy: str = "delete it and run the stage that writes it again") -> Any:
    """Read JSON.

    Args:
        path: the file.
        remedy: how to fix a damaged file.

    Raises:
        StoreError: the file is missing, unreadable or damaged.
    """
    try:
        return json.loads(read_bytes(path).decode())
    except FileNotFoundError as error:
        raise StoreError(f"{path}: does not exist", MISSING_REMEDY) from error
    except OSError as error:
        other = isinstance(error, IsADirectoryError)
        found = "move it away and run the stage that writes it again" if other else "check its permissions"
        raise StoreError(f"{path}: cannot be read: {error.strerror}", found) from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: is damaged: {error}", remedy) from error


def hash_file(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with open(path, "rb", opener=_open_file) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, or is a pipe or a device, which would keep its reader waiting.
    """
    with open(path, "rb", opener=_open_file) as handle:
        return handle.read()


def _open_file(name: str, flags: int) -> int:
    # The flag is for pipes: opening one would wait for its writer.
    descriptor = os.open(name, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, "is not a file", name)
    return descriptor
