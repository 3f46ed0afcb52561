"""Write files and folders atomically and durably."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError

__all__ = [
    "atomic_folder",
    "atomic_path",
    "hash_file",
    "read_json",
    "sync",
    "write_json",
    "write_text",
]


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give an empty temporary file beside `path`; on success it is flushed and takes the name, on failure it is removed.

    It is readable by whom the umask allows, like any other new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{path.suffix}")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        # Only writing meets a full disk, and the system does not say which file it was.
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder beside `path`; on success it takes the name and an earlier folder goes, on failure it stays.

    What an interrupted writer left under the temporary names, which are always the same, is removed first. The old
    folder is set aside before it is removed, so that it is never there in parts.

    Raises:
        StoreError: something that is no folder has the name.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise StoreError(f"{path}: is a link or a file, not a folder", "move it away and run the stage again")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = path.with_name(path.name + ".partial"), path.with_name(path.name + ".old")
    for left in (temporary, old):
        if left.is_symlink() or left.is_file():
            left.unlink()
        elif left.exists():
            shutil.rmtree(left)
    temporary.mkdir()
    yield temporary
    for parent, _, files in os.walk(temporary):
        for name in files:
            sync(Path(parent, name))
        sync(Path(parent))
    if path.exists():
        path.replace(old)
    temporary.replace(path)
    sync(path.parent)
    if old.exists():
        shutil.rmtree(old)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON with sorted keys, whole or not at all.

    Raises:
        ValueError: NaN or infinity, for which JSON has no number.
    """
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str = "delete it and run the stage that writes it again") -> Any:
    """Read JSON.

    Args:
        path: the file.
        remedy: what to do when it is damaged.

    Raises:
        StoreError: missing, not readable or damaged; names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StoreError(f"{path}: is not there", "run the stage that writes it") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}", "see who may read it") from error
    except ValueError as error:
        raise StoreError(f"{path}: is damaged: {error}", remedy) from error


def hash_file(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
