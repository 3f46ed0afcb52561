"""Imports go one way, as `[tool.importlinter]` of pyproject.toml declares, and what need not compute loads no JAX."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BROKEN = {
    "layers": ("store/layout.py", "bayesmesh.workflow.jobs"),
    "reproduction": ("operations/gc.py", "bayesmesh_reproduction.__main__"),
    "pure": ("kernels/base.py", "bayesmesh.store.layout"),
    "tables": ("report/page.py", "bayesmesh.models.base"),
    "draws": ("analyses/averaging/scores.py", "bayesmesh.sampling.density.mesh"),
    "without-jax": ("files.py", "jax"),
    "without-jax-themselves": ("cli.py", "jax"),
    "sections": ("analyses/averaging/section.py", "jax"),
    "circles": ("errors.py", "bayesmesh.files"),
    "pickle": ("operations/verify.py", "pickle"),
    "pymc": ("kernels/hmc.py", "pymc"),
    "numpyro": ("kernels/hmc.py", "numpyro"),
}
"""Contract -> a file and an import in it that breaks the contract."""


def _contracts() -> dict[str, str]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {contract["id"]: contract["name"] for contract in declared}


def _lint(source: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the package in `source`; all contracts, or one."""
    command = [sys.executable, "-c", "import importlinter.cli as c; c.import_linter()"]
    command += ["lint", "--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"]
    command += ["--contract", contract] if contract else []
    # Wide enough that no module is broken over two lines.
    environment = {**os.environ, "PYTHONPATH": str(source), "COLUMNS": "400", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)


def _copy(folder: Path) -> Path:
    """Copy both packages and return the folder of the first."""
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return folder / "bayesmesh"


def test_imports_go_one_way() -> None:
    done = _lint(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_each_contract_is_broken_by_a_wrong_import(tmp_path: Path) -> None:
    package = _copy(tmp_path)
    for name, module in BROKEN.values():
        path = package / name
        path.write_text(f"{path.read_text()}\nimport {module}\n")
    said = _lint(tmp_path).stdout
    verdicts = {id_: f"{name} BROKEN" in said for id_, name in _contracts().items()}
    assert verdicts == dict.fromkeys(BROKEN, True), said
    for name, module in BROKEN.values():
        wrong = f"bayesmesh.{name.removesuffix('.py').replace('/', '.')} -> {module}"
        assert wrong in said or module == "bayesmesh.files", wrong


def test_a_new_unit_needs_a_layer(tmp_path: Path) -> None:
    package = _copy(tmp_path)
    (package / "attic.py").touch()
    done = _lint(tmp_path, "layers")
    assert done.returncode == 1
    assert "bayesmesh.attic" in done.stdout


def test_what_does_not_compute_does_not_load_jax() -> None:
    modules = (
        "cli", "config.loading", "data.sharding", "diagnostics.diagnosis", "operations.doctor", "operations.status",
        "workflow.plan", "analyses.base", "analyses.averaging.section", "analyses.recommendation.section", "report.page", "workflow.stages.diagnose",
        "workflow.stages.report", "store.chains.segments",
    )  # fmt: skip
    code = (
        f"import importlib, sys\n"
        # Every command, and a notebook, begins with this import.
        f"import bayesmesh\n"
        f"if loaded := {{'pandas', 'pydantic', 'xarray', 'yaml', 'zarr'}} & set(sys.modules):\n"
        f"    sys.exit(f'bayesmesh loads {{loaded}}')\n"
        f"heavy = {{'jax', 'jaxlib', 'tensorflow', 'tensorflow_probability', 'tensorflow_datasets'}}\n"
        f"for module in {[f'bayesmesh.{module}' for module in modules] + ['bayesmesh_reproduction.rules', 'bayesmesh_reproduction.__main__']}:\n"
        "    importlib.import_module(module)\n"
        "    if loaded := sorted(heavy & set(sys.modules)):\n"
        "        sys.exit(f'{module} loads {loaded}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "folder", ["data", "models", "kernels", "store", "sampling", "diagnostics", "analyses", "report"]
)
def test_components_and_settings_are_passed_and_not_looked_up(folder: str) -> None:
    """The command constructs the components; what stages call gets these, or their declarations, as arguments."""
    finding = ("bayesmesh.config.registry", "bayesmesh.config.declarations", "bayesmesh.workflow")
    for path in sorted((ROOT / "src" / "bayesmesh" / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(finding):
                assert {each.name for each in node.names} == {"AnalysisDeclaration"}, path
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith(finding) for each in node.names), path
