"""Write and read JSON that contains its own digest, which reveals any change."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.files import read_json, write_json, write_json_once

_KEY = "sha256"


def write_checked(path: Path, content: Mapping[str, object]) -> None:
    """Write JSON with a digest of its name and content, atomically.

    Args:
        path: the file.
        content: without a key ``sha256``.
    """
    write_json(path, _with_digest(path.name, content))


def write_checked_once(path: Path, content: Mapping[str, object], remedy: str) -> dict[str, Any]:
    """Write JSON with its digest unless the file exists; return its content, equal for all concurrent writers.

    Raises:
        StoreError: the file is damaged.
    """
    if not path.exists():
        write_json_once(path, _with_digest(path.name, content))
    return read_checked(path, remedy)


def read_checked(
    path: Path, remedy: str = "delete it and run the stage that writes it again", *, must_have_digest: bool = False
) -> dict[str, Any]:
    """Return the content of such a file, without its digest.

    Args:
        path: the file.
        remedy: how to fix a damaged file.
        must_have_digest: refuse a file without a digest; otherwise it counts as written by an earlier version.

    Raises:
        StoreError: the file is missing, unreadable or changed.
    """
    value = read_json(path, remedy)
    if not isinstance(value, dict):
        raise StoreError(f"{path}: is damaged: not a record", remedy)
    found = value.pop(_KEY, None)
    is_older = found is None and not must_have_digest and not any(map(_is_nearly_key, value))
    if not is_older and found != _digest(path.name, value):
        raise StoreError(f"{path}: is damaged: its content is not what was written", remedy)
    return value


def _with_digest(name: str, content: Mapping[str, object]) -> dict[str, object]:
    # Digest the content as a reader will parse it.
    plain = json.loads(json.dumps(content))
    return {**plain, _KEY: _digest(name, plain)}


def _digest(name: str, content: Mapping[str, object]) -> str:
    """Return a sha256 over the name and content of a file."""
    return hashlib.sha256(json.dumps([name, content], sort_keys=True).encode()).hexdigest()


def _is_nearly_key(name: str) -> bool:
    """Return whether a key differs from the digest's in one letter; such damage must not pass as a file without digest."""
    return len(name) == len(_KEY) and sum(a != b for a, b in zip(name, _KEY, strict=True)) == 1


def is_altered(path: Path, content: bytes) -> bool:
    """Return whether a specification that the workflow wrote no longer matches the digest in its name."""
    named = re.fullmatch(r"[a-z_]+-([0-9a-f]{12})\.json", path.name)
    if named is None or path.parent.name != "specs":
        return False
    return hashlib.sha256(content).hexdigest()[:12] != named[1]
