"""Imports go one way, files and functions stay short, and what need not compute does not load what computes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bayesmesh.config.source_imports import PACKAGE_ROOT as ROOT
from bayesmesh.config.source_imports import imported_modules

LAYERS = [
    {"errors"},
    {"files"},
    {"running", "config"},
    {"store"},
    {"data", "models", "kernels"},
    {"planning"},
    {"sampling", "diagnostics", "figures"},
    {"analyses"},
    {"report"},
    {"stages"},
    {"operations"},
    {"reproduction"},
    {"cli"},
]
"""From the bottom to the top. A unit imports from lower layers only; the units of a layer never import each other."""

APART = {
    "models": {"store", "ledger", "data"},
    "kernels": {"store", "ledger", "data"},
    "bridges": {"store", "ledger", "data", "kernels"},
    "diagnostics": {"data", "models", "kernels", "sampling"},
    "averaging": {"kernels", "sampling"},
    "recommend": {"kernels", "sampling"},
    "report": {"data", "models", "kernels", "sampling", "averaging", "recommend"},
}
"""What a unit does without, though it lies lower: models know no files, a report reads tables."""

FILES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.stat().st_size)
IDS = [str(path.relative_to(ROOT)) for path in FILES]
LEVEL = {unit: number for number, units in enumerate(LAYERS) for unit in units}


def _unit(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def _imported(path: Path) -> set[str]:
    """Units of this package that a file imports anywhere, also inside functions."""
    return {m.split(".")[1] for m in imported_modules(path) if "." in m} - {_unit(path)}


def test_every_unit_has_its_layer() -> None:
    units = {_unit(path) for path in FILES} - {"__init__"}
    assert len(units) > 10
    assert units <= LEVEL.keys(), "say in LAYERS where the new unit lies"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_go_one_way(path: Path) -> None:
    unit = _unit(path)
    wrong = {other for other in _imported(path) if LEVEL[other] >= LEVEL.get(unit, 0)}
    assert wrong == set(), f"{unit} imports from its own layer or above"
    assert _imported(path) & APART.get(unit, set()) == set()


def _top_level_names(path: Path) -> set[str]:
    """Full names of all foreign modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_what_does_not_compute_does_not_name_jax(path: Path) -> None:
    packages = {name.partition(".")[0] for name in _top_level_names(path)}
    assert "tensorflow" not in packages
    assert not packages & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    if _unit(path) in {
        "errors",
        "progress",
        "store",
        "ledger",
        "experiment",
        "data",
        "diagnostics",
        "report",
        "status",
        "cli",
    }:
        assert not packages & {"jax", "jaxlib", "tensorflow_probability"}
    if _unit(path) not in {"bridges", "benchmarks"}:
        assert not packages & {"pymc", "pytensor"}, "an optional extra"


@pytest.mark.parametrize(
    "module", ["report.page", "diagnostics.diagnose", "store.segments", "data.shard", "status", "doctor", "cli", "stages.report", "stages.diagnose"]
)  # fmt: skip
def test_what_does_not_compute_does_not_load_jax(module: str) -> None:
    code = (
        f"import sys, bayesmesh.{module}\n"
        "print([m for m in ('jax', 'jaxlib', 'tensorflow', 'tensorflow_probability', 'tensorflow_datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _num_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, less its docstring: documentation is never too long."""
    first = function.body[0]
    is_documented = isinstance(first, ast.Expr) and ast.get_docstring(function) is not None
    documented = first.end_lineno - first.lineno + 1 if is_documented else 0
    return function.end_lineno - function.lineno + 1 - documented


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    assert [f"{f.name}: {_num_lines(f)} lines" for f in functions if _num_lines(f) > 50] == []


def test_no_file_is_named_after_nothing() -> None:
    assert [p for p in ROOT.rglob("*") if p.stem in {"utils", "util", "helpers", "helper", "misc", "common"}] == []
