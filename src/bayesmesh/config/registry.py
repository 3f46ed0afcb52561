"""Finds data sources, models, kernels and analyses by their files, and reads their options without running them.

A component is one file, ``<name>.py``, in its package; an analysis may also be a folder ``<name>/`` with its class in
``analysis.py`` and its options in ``settings.py``. Its class ``Options`` (a `Settings`) is taken from the source
text, so that a configuration is checked in milliseconds and without JAX, TFP or TFDS. The class must therefore use
no names but those of `_IN_OPTIONS`. A model may also be ``module:attribute`` of the user's own package.
"""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import Field, PydanticUserError
from pydantic_core import SchemaError

from bayesmesh.config.blocks import HamiltonianSettings, MetricName, metric_path
from bayesmesh.config.settings import Argument, Settings
from bayesmesh.config.source_imports import file_in, parse_file, python_path
from bayesmesh.config.user_code import explaining
from bayesmesh.errors import ConfigError, suggest

_ROOT = Path(__file__).resolve().parent.parent

PACKAGES: dict[str, str] = {"source": "data/sources", "model": "models", "kernel": "kernels", "analysis": "analyses"}
"""Kind of component -> folder of its files, relative to the package."""

_IN_OPTIONS: dict[str, Any] = {
    "Settings": Settings, "HamiltonianSettings": HamiltonianSettings, "Argument": Argument, "MetricName": MetricName,
    "Field": Field, "Literal": Literal, "Annotated": Annotated,
}  # fmt: skip
"""Names that a class ``Options`` may use."""


def list_components(kind: str) -> list[str]:
    """Return the names of all components of a kind, sorted."""
    folder = _ROOT / PACKAGES[kind]
    found = {p.stem for p in folder.glob("*.py") if p.stem != "base" and not p.stem.startswith("_")}
    if kind == "analysis":
        found |= {p.parent.name for p in folder.glob("*/analysis.py")}
    return sorted(found)


def component_path(kind: str, name: str) -> Path:
    """Return the source file of a component; ``module:attribute`` is looked up on the Python path.

    Raises:
        ConfigError: no such component; the message names the nearest.
    """
    if ":" in name:
        return _external_path(kind, name)
    if name not in list_components(kind):
        raise ConfigError(f"unknown {kind} '{name}': {suggest(name, list_components(kind))}")
    file = _ROOT / PACKAGES[kind] / f"{name}.py"
    return file if file.is_file() else file.with_suffix("") / "analysis.py"


def component_files(kind: str, config: Mapping[str, str]) -> list[Path]:
    """Return the source files that a component's block of the configuration names: its own, and its metric's."""
    files = [component_path(kind, config["source" if kind == "source" else "name"])]
    if kind == "kernel" and "metric" in config:
        files.append(metric_path(config["metric"]))
    return files


def _external_path(kind: str, name: str) -> Path:
    module = name.partition(":")[0]
    found = next(filter(None, (file_in(entry, module.split(".")) for entry in python_path())), None)
    if found is None:
        raise ConfigError(
            f"unknown {kind} '{name}': no module {module} on the Python path",
            "install your package into .venv, or start from the folder that holds it",
        )
    return found


@functools.cache
def parse_classes(path: Path) -> list[ast.ClassDef]:
    """Return the classes of a file, as syntax."""
    return [node for node in parse_file(path).body if isinstance(node, ast.ClassDef)]


@functools.cache
def read_options(path: Path) -> type[Settings]:
    """Build the class ``Options`` of a component from its source text alone; that of a folder may be in ``settings.py``.

    Raises:
        ConfigError: the file has no such class, or the class needs a name that is not allowed in it.
    """
    found = [node for node in parse_classes(path) if node.name == "Options"]
    settings = path.with_name("settings.py")
    if not found and path.stem == "analysis" and settings.is_file():
        return read_options(settings)
    if not found:
        raise ConfigError(
            f"{path}: no class Options(Settings)", "add `class Options(Settings): ...`, empty if there are none"
        )
    name = path.parent.name if path.stem == "settings" else path.stem
    namespace: dict[str, Any] = {**_IN_OPTIONS, "__name__": f"options_of_{name}"}
    code = compile(ast.Module(body=[found[0]], type_ignores=[]), str(path), "exec", dont_inherit=True)
    try:
        exec(code, namespace)  # the project's own source, not user input
    except (NameError, TypeError, ValueError, AttributeError, PydanticUserError, SchemaError) as error:
        raise ConfigError(f"{path}: class Options: {error}", f"use only {', '.join(_IN_OPTIONS)} in it") from error
    options: type[Settings] = namespace["Options"]
    if not issubclass(options, Settings):
        raise ConfigError(f"{path}: class Options is no Settings", "write `class Options(Settings): ...`")
    return options


def resolve_component(kind: str, name: str, options: Mapping[str, object]) -> tuple[type[Any], Settings]:
    """Return the class of a component and its validated options, from which it is made.

    Raises:
        ConfigError: the component does not exist.
        ValidationError: the options are not those of its class.
    """
    return load_component(kind, name), read_options(component_path(kind, name)).model_validate(dict(options))


def load_component(kind: str, name: str) -> type[Any]:
    """Import a component and return its class: the one subclass of the contract that its file defines.

    Raises:
        ConfigError: the file defines none, or several; or the named attribute is not there.
    """
    path = component_path(kind, name)
    # The contract is in the file base.py of the first folder.
    base = importlib.import_module(f"bayesmesh.{PACKAGES[kind].partition('/')[0]}.base")
    contract: type[Any] = getattr(base, kind.capitalize())
    if ":" in name:
        with explaining([path]):
            return _load_external(kind, name, contract)
    with explaining([path]):
        module = importlib.import_module(".".join(["bayesmesh", *path.relative_to(_ROOT).with_suffix("").parts]))
    found = [c for c in vars(module).values() if _is_subclass(c, contract) and c.__module__ == module.__name__]
    if len(found) != 1:
        raise ConfigError(f"{path}: {len(found)} subclasses of {contract.__name__}; a component is exactly one")
    return found[0]


def _is_subclass(value: object, contract: type) -> TypeGuard[type]:
    return isinstance(value, type) and issubclass(value, contract)


def _load_external(kind: str, name: str, contract: type) -> type[Any]:
    """Import ``module:attribute`` from the current folder or the Python path."""
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    finally:
        sys.path.pop(0)
    if not hasattr(module, attribute):
        raise ConfigError(f"{kind} '{name}': {module_name} has no {attribute}", suggest(attribute, vars(module)))
    component = getattr(module, attribute)
    if not _is_subclass(component, contract):
        raise ConfigError(f"{kind} '{name}' is not a subclass of {contract.__module__}.{contract.__name__}")
    return component
