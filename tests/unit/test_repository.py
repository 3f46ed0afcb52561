"""Lints of the repository: imports, names, annotations, installed files, and the map of the package."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "bayesmesh"
FILES = sorted(PACKAGE.rglob("*.py"))

SECOND = PACKAGE.with_name("bayesmesh_reproduction")
MAP = ROOT / "docs" / "map.md"
ROW = re.compile(r"^\| `([\w/]+(?:/|\.py))` \| (.+) \|$", re.MULTILINE)

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


def test_no_code_is_made_at_run_time_and_no_other_package_is_changed() -> None:
    files = [path for path in (*FILES, *SECOND.rglob("*.py")) if path.name != "executor_patch.py"]
    _refuse(
        (f"{path.relative_to(ROOT)}:{line}: {what}" for path in files for line, what in _intrusions(path)),
        "use a public interface",
    )


def test_intrusions_are_found(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "import sys\nimport jax\nfrom snakemake.jobs import Job\nfrom jax._src import core\n"
        "exec('')\nsys.modules['x'] = None\nJob.restart_times = 0\njax.jit.f = 0\nsetattr(Job, 'x', 0)\nsys.addaudithook(print)\n"
    )
    assert [line for line, _ in sorted(_intrusions(file))] == [4, 5, 6, 7, 8, 9, 10]


_FORBIDDEN = {"exec", "eval", "compile", "addaudithook", "SourceFileLoader"}


def _intrusions(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and offence: calls that make code, private parts of JAX, and assignments to other packages."""
    others = set[str]()
    for node in _nodes(path):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("bayesmesh"):
            others |= {alias.asname or alias.name for alias in node.names}
            if (node.module or "").startswith("jax._src"):
                yield node.lineno, "jax._src"
        elif isinstance(node, ast.Import):
            names = [alias for alias in node.names if not alias.name.startswith("bayesmesh")]
            others |= {alias.asname or alias.name.split(".")[0] for alias in names}
    for node in _nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in _FORBIDDEN:
                yield node.lineno, f"{node.func.id}()"
            elif node.func.id == "setattr" and _base(node.args[0]) in others:
                yield node.lineno, f"setattr on {_base(node.args[0])}"
        elif isinstance(node, ast.Attribute) and node.attr in {"addaudithook", "SourceFileLoader", "_src"}:
            yield node.lineno, node.attr
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        for target in targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete) else ():
            # What Snakemake's profile reads are the arguments of this process.
            if isinstance(target, ast.Attribute) and _base(target) in others and ast.unparse(target) != "sys.argv":
                yield node.lineno, f"assigns to {ast.unparse(target)}"
            elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == "sys.modules":
                yield node.lineno, "assigns to sys.modules"


def _base(node: ast.AST) -> str:
    """Return the name at the root of a chain of attributes; empty if it is another expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_few_signatures_say_any() -> None:
    """`Any` hides errors from the type checker: `object`, a `TypedDict`, a protocol or a type parameter says more."""
    functions = [n for path in FILES for n in _nodes(path) if isinstance(n, ast.FunctionDef)]
    said = [f for f in functions if any(_says_any(part) for part in (f.args, f.returns) if part is not None)]
    assert len(said) <= 0.08 * len(functions), f"{len(said)} of {len(functions)} functions"


def _says_any(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "Any" for each in ast.walk(node))


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


# -- docs/map.md --------------------------------------------------------------------------------------------------------


def rows() -> list[tuple[str, str]]:
    return ROW.findall(MAP.read_text(encoding="utf-8"))


def folders() -> set[str]:
    """Folders that hold a file; an empty one may be the remains of another branch."""
    roots = ((PACKAGE, PACKAGE), (SECOND, SECOND.parent))
    files = (
        (path, top)
        for root, top in roots
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return {f"{path.parent.relative_to(top)}/" for path, top in files if path.parent != PACKAGE}


def path_of(name: str) -> Path:
    return (SECOND.parent if name.startswith(SECOND.name) else PACKAGE) / name


def first_paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def test_the_map_names_every_folder_and_module_once() -> None:
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert sorted(name for name, _ in rows()) == sorted(folders() | modules), "add or remove rows of docs/map.md"


def test_the_map_gives_each_one_sentence() -> None:
    assert {name: text for name, text in rows() if not text.endswith(".") or ". " in text} == {}


def test_docstrings_of_packages_agree() -> None:
    differing = {}
    for name, text in rows():
        path = path_of(name) / "__init__.py" if name.endswith("/") else path_of(name)
        if path.exists() and first_paragraph(path) != text:
            differing[name] = first_paragraph(path)
    assert differing == {}, "make the docstring and the row of docs/map.md the same"
