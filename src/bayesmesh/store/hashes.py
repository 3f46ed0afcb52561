"""Write and read the list of hashes of a folder, in the format of ``sha256sum``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file, read_bytes, write_text

_LINE = re.compile(r"^([0-9a-f]{64})  (.+)$")
_REMEDY = "run the stage that writes it again"


def write_hashes(folder: Path, known: Mapping[tuple[int, int], str]) -> None:
    """Hash every file below `folder` into ``<folder>.sha256`` beside it, replacing the folder's ending.

    Args:
        folder: such as ``posterior.zarr``; its list is ``posterior.sha256``.
        known: (device, inode) -> sha256 of files that are already hashed; hard links to a file share its hash.
    """
    write_text(folder.with_suffix(".sha256"), _list_hashes(folder, folder.parent, known))


def hashes_of(folder: Path) -> dict[str, str]:
    """Return path below the folder's parent -> sha256, from the list of `write_hashes`.

    Raises:
        StoreError: the list is missing or has an invalid line.
    """
    path = folder.with_suffix(".sha256")
    try:
        lines = read_bytes(path).decode().splitlines()
    except FileNotFoundError as error:
        raise StoreError(f"{path}: does not exist", _REMEDY) from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: is damaged: {error}", _REMEDY) from error
    found = [_LINE.match(line) for line in lines]
    if not lines or None in found:
        raise StoreError(f"{path}: is damaged: a line does not consist of a hash and a path", _REMEDY)
    return {m[2]: m[1] for m in found if m is not None}


def folder_digest(folder: Path) -> str:
    """Return one sha256 of the names and contents of all files below a folder, in hexadecimal."""
    return hashlib.sha256(_list_hashes(folder, folder, {}).encode()).hexdigest()


def check_metadata(folder: Path) -> None:
    """Compare the metadata of a Zarr store with its list of hashes, if it has one; chunks have their own checksums.

    Raises:
        StoreError: a ``zarr.json`` is missing or has changed.
    """
    if folder.with_suffix(".sha256").exists():
        for name, value in hashes_of(folder).items():
            about = folder.parent / name
            if about.name == "zarr.json" and (not about.is_file() or hash_file(about) != value):
                raise StoreError(f"{about}: is missing or damaged", _REMEDY)


def _list_hashes(folder: Path, root: Path, known: Mapping[tuple[int, int], str]) -> str:
    """Return a line for each file below a folder, with its hash and its path below `root`."""
    lines = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        about = path.stat()
        found = known.get((about.st_dev, about.st_ino)) or hash_file(path)
        lines.append(f"{found}  {path.relative_to(root).as_posix()}\n")
    return "".join(lines)
