"""JSON that is written once and carries a digest of itself, so that no change of it passes unseen."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.files import read_json, sync, write_json

__all__ = ["read_sealed", "write_sealed", "write_sealed_once"]

_KEY = "sha256"


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with a digest of its name and content, whole or not at all.

    Args:
        path: the file.
        content: without a key ``sha256``.
    """
    write_json(path, _seal(path.name, content))


def write_sealed_once(path: Path, content: Mapping[str, Any], remedy: str) -> dict[str, Any]:
    """Write sealed JSON unless the file is there; returns what it holds, the same for all that ask at once.

    Raises:
        StoreError: what is there is damaged; names the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{path.suffix}")
    try:
        if not path.exists():
            write_json(temporary, _seal(path.name, content))
            # A hard link, which fails where the name is taken: also on network file systems only one can win.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return read_sealed(path, remedy)


def read_sealed(
    path: Path, remedy: str = "delete it and run the stage that writes it again", *, must_have_digest: bool = False
) -> dict[str, Any]:
    """Return the content of a sealed file, without its digest.

    Args:
        path: the file.
        remedy: what to do when it is damaged.
        must_have_digest: refuse a file without one; otherwise it is taken for one of an earlier version.

    Raises:
        StoreError: missing, not readable, or not what was written; names the file.
    """
    value = read_json(path, remedy)
    if not isinstance(value, dict):
        raise StoreError(f"{path}: is damaged: not a record", remedy)
    found = value.pop(_KEY, None)
    is_older = found is None and not must_have_digest and not any(map(_is_nearly_key, value))
    if not is_older and found != _digest(path.name, value):
        raise StoreError(f"{path}: is damaged: its content is not what was written", remedy)
    return value


def _seal(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    # Through JSON, as a reader will have it.
    plain = json.loads(json.dumps(content))
    return {**plain, _KEY: _digest(name, plain)}


def _digest(name: str, content: Mapping[str, Any]) -> str:
    """Return a sha256 over a file's name and content, so that no change of either passes unseen."""
    return hashlib.sha256(json.dumps([name, content], sort_keys=True).encode()).hexdigest()


def _is_nearly_key(name: str) -> bool:
    """Return whether one letter makes the difference: damage must not pass for a file that never had a digest."""
    return len(name) == len(_KEY) and sum(a != b for a, b in zip(name, _KEY, strict=True)) == 1
