"""Find benchmarks by their files, and read the settings from the workflow."""

from __future__ import annotations

import ast
from pathlib import Path

from pydantic import ValidationError

from bayesmesh.config.blocks import BenchmarkSettings
from bayesmesh.errors import ConfigError, suggest

__all__ = ["benchmark_files", "list_benchmarks", "parse_benchmarks"]

_FOLDER = Path(__file__).resolve().parent


def parse_benchmarks(text: str) -> BenchmarkSettings:
    """Return the settings that the workflow passes to a job as JSON.

    Raises:
        ConfigError: the JSON has another form.
    """
    try:
        return BenchmarkSettings.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        raise ConfigError(f"--settings: {where}{first['msg']}", "leave it out to read config/config.yaml") from error


def list_benchmarks() -> dict[str, str]:
    """Return name -> description of all benchmarks; files are read, not imported.

    A benchmark is a file or a package in its folder that defines a function ``run``.
    """
    found: dict[str, str] = {}
    for path in sorted([*_FOLDER.glob("*.py"), *_FOLDER.glob("*/__init__.py")]):
        tree = ast.parse(path.read_bytes(), filename=str(path))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            name = path.parent.name if path.name == "__init__.py" else path.stem
            found[name] = (ast.get_docstring(tree) or "").partition("\n")[0].removeprefix(f"{name}: ")
    return found


def benchmark_files(name: str) -> list[Path]:
    """Return the source files of a benchmark, including those of contenders, which are named by strings.

    Raises:
        ConfigError: there is no such benchmark; the message names the nearest.
    """
    if name not in list_benchmarks():
        raise ConfigError(f"no benchmark '{name}': {suggest(name, list_benchmarks())}")
    single = _FOLDER / f"{name}.py"
    return [single] if single.is_file() else sorted((_FOLDER / name).rglob("*.py"))
