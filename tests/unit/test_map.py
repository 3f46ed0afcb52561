"""The map of the package in `docs/map.md` agrees with the tree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from bayesmesh.config.source_code import PACKAGE_ROOT

SECOND = PACKAGE_ROOT.with_name("bayesmesh_reproduction")
MAP = Path(__file__).resolve().parents[2] / "docs" / "map.md"
ROW = re.compile(r"^\| `([\w/]+(?:/|\.py))` \| (.+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str]]:
    return ROW.findall(MAP.read_text(encoding="utf-8"))


def folders() -> set[str]:
    """Folders that hold a file; an empty one may be the remains of another branch."""
    roots = ((PACKAGE_ROOT, PACKAGE_ROOT), (SECOND, SECOND.parent))
    files = (
        (path, top)
        for root, top in roots
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return {f"{path.parent.relative_to(top)}/" for path, top in files if path.parent != PACKAGE_ROOT}


def path_of(name: str) -> Path:
    return (SECOND.parent if name.startswith(SECOND.name) else PACKAGE_ROOT) / name


def first_paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def test_names_every_folder_and_module_once() -> None:
    modules = {path.name for path in PACKAGE_ROOT.glob("*.py")} - {"__init__.py"}
    assert sorted(name for name, _ in rows()) == sorted(folders() | modules), "add or remove rows of docs/map.md"


def test_gives_each_one_sentence() -> None:
    assert {name: text for name, text in rows() if not text.endswith(".") or ". " in text} == {}


def test_docstrings_of_packages_agree() -> None:
    differing = {}
    for name, text in rows():
        path = path_of(name) / "__init__.py" if name.endswith("/") else path_of(name)
        if path.exists() and first_paragraph(path) != text:
            differing[name] = first_paragraph(path)
    assert differing == {}, "make the docstring and the row of docs/map.md the same"
