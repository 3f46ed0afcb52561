"""Files and functions stay short, and names say what a file holds; each lint names all offenders at once."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "bayesmesh"
FILES = sorted(PACKAGE.rglob("*.py"))

SHARED_NAMES = {
    "__init__.py": "a package",
    "base.py": "the contract that the files beside it keep",
    "settings.py": "what a user may write",
    "tables.py": "the tables that a stage writes or a page reads",
    "analysis.py": "what an analysis declares",
    "section.py": "how an analysis shows its results",
    "model.py": "the model of a bridge or of formulas",
}
"""Names that several files have, each with what all of them hold."""

NO_NAMES = {"utils", "util", "helpers", "helper", "misc", "common"}


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_bytes())))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in _nodes(path) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _refuse(offenders: Iterable[str], remedy: str) -> None:
    """Fail with a line for each offender."""
    named = sorted(offenders)
    assert not named, "\n".join([remedy, *named])


def _num_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, less its docstring: documentation is never too long."""
    first = function.body[0]
    is_documented = isinstance(first, ast.Expr) and ast.get_docstring(function) is not None
    documented = first.end_lineno - first.lineno + 1 if is_documented else 0
    return function.end_lineno - function.lineno + 1 - documented


def test_files_are_short() -> None:
    assert len(FILES) > 100
    lengths = {_name(path): len(path.read_text().splitlines()) for path in FILES}
    _refuse((f"{name}: {length}" for name, length in lengths.items() if length > 400), "split files over 400 lines")


def test_functions_are_short() -> None:
    lengths = {f"{_name(path)}: {f.name}": _num_lines(f) for path in FILES for f in _functions(path)}
    _refuse((f"{name}: {length}" for name, length in lengths.items() if length > 50), "split functions over 50 lines")


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


def test_no_two_files_that_do_different_things_have_one_name() -> None:
    """A stage is called after what it runs, and a source or a metric as the configuration names it."""
    named: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if path.parent.name not in {"stages", "sources", "metrics"}:
            named[path.name].append(_name(path))
    shared = (
        f"{name}: {', '.join(paths)}" for name, paths in named.items() if len(paths) > 1 and name not in SHARED_NAMES
    )
    _refuse(shared, "give each a name of its own, or say in SHARED_NAMES what all of them hold")


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
