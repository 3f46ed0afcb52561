"""Compute a fingerprint of the source code that a stage runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from bayesmesh.config.source_imports import PACKAGE_ROOT, enclosing_packages

__all__ = ["fingerprint"]


def fingerprint(files: Iterable[Path]) -> str:
    """Return 16 hexadecimal digits over names and contents of source files; the location of user files does not count."""
    lines = sorted(f"{_name(path)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _name(path: Path) -> str:
    if path.is_relative_to(PACKAGE_ROOT):
        return str(path.relative_to(PACKAGE_ROOT))
    return "/".join([*reversed([folder.name for folder in enclosing_packages(path)]), path.name])
