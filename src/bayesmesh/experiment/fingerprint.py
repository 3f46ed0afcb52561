"""A fingerprint of the source code that a stage runs: its module and all that this imports, followed file by file.

Configuration code is left out: all that it can change is the configuration a stage is given, and that is compared
by itself. The files are read as text; nothing is imported.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["fingerprint", "imported_modules", "source_closure"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "bayesmesh"
_LEFT_OUT = ("bayesmesh.experiment", "bayesmesh.cli")


def _file_of(module: str) -> Path | None:
    relative = Path(*module.split(".")[1:])
    for candidate in (
        ROOT / relative.with_suffix(".py") if relative.parts else ROOT / "__init__.py",
        ROOT / relative / "__init__.py",
    ):
        if candidate.is_file():
            return candidate
    return None


@functools.cache
def imported_modules(path: Path) -> frozenset[str]:
    """Return the modules of this package that a file imports anywhere, with the packages that hold them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == PACKAGE:
                found |= {".".join(parts[:i]) for i in range(1, len(parts) + 1)}
    return frozenset(name for name in found if _file_of(name))


def source_closure(entries: Iterable[Path], only: tuple[str, ...] = ()) -> list[Path]:
    """Return the files that the entries import, directly or not, themselves included, sorted.

    Args:
        entries: files to start from.
        only: packages to stay in, such as ``bayesmesh.models``; all of them when empty.
    """
    waiting, seen = list(entries), set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imported_modules(path):
            if module.startswith(_LEFT_OUT) or (only and not module.startswith(only)):
                continue
            file = _file_of(module)
            if file is not None:
                waiting.append(file)
    return sorted(seen)


def fingerprint(files: Iterable[Path]) -> str:
    """Return 16 hexadecimal digits over names and contents of source files."""
    digest = hashlib.sha256()
    for path in files:
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
