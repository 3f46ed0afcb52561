"""Lints of source files; each names all offenders at once."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "bayesmesh"
FILES = sorted(PACKAGE.rglob("*.py"))

NO_NAMES = {"utils", "util", "helpers", "helper", "misc", "common"}


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_bytes())))


def _refuse(offenders: Iterable[str], remedy: str) -> None:
    """Fail with a line for each offender."""
    named = sorted(offenders)
    assert not named, "\n".join([remedy, *named])


def test_imports_are_absolute() -> None:
    relative = (
        f"{_name(path)}:{node.lineno}"
        for path in FILES
        for node in _nodes(path)
        if isinstance(node, ast.ImportFrom) and node.level
    )
    _refuse(relative, "write the whole name of the module")


def test_no_file_is_named_after_nothing() -> None:
    _refuse(
        (_name(path) for path in PACKAGE.rglob("*") if path.stem in NO_NAMES), "say in the name what the file holds"
    )


def test_the_top_of_the_package_is_seen_at_a_glance() -> None:
    entries = sorted(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__")
    assert len(entries) <= 22, entries


def test_all_files_that_are_not_python_are_installed() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["bayesmesh"]
    installed = {path for pattern in data for path in PACKAGE.glob(pattern)}
    others = {
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and path.parent.name != "__pycache__"
    }
    _refuse(map(_name, others - installed), "name these in package-data of pyproject.toml")
    _refuse((pattern for pattern in data if not list(PACKAGE.glob(pattern))), "package-data that names no file")
