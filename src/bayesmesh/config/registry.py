"""Find data sources, models, kernels and analyses by their files, and their options.

A component is one file, ``<name>.py``, in its package; a model or an analysis may also be a folder ``<name>/`` with its
class in ``model.py`` or ``analysis.py``. The options of this package's components are in ``options.py`` of each kind, which
imports neither JAX nor the component, so that a configuration is checked without them. A component may also be
``module:attribute`` of the user's own package, which is imported only by the jobs that use it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from bayesmesh.config.blocks import AUTO, METRICS, metric_path
from bayesmesh.config.settings import CODE_PATTERN, Settings, code_names
from bayesmesh.config.source_code import file_in, parse_file, python_path
from bayesmesh.config.user_code import explaining, load_named, refuse_misspelt_names
from bayesmesh.errors import ConfigError, suggest

_ROOT = Path(__file__).resolve().parent.parent

PACKAGES: dict[str, str] = {"source": "data/sources", "model": "models", "kernel": "kernels", "analysis": "analyses"}
"""Kind of component -> folder of its files, relative to the package."""

BLOCKS = {"source": ("data", "source"), "model": ("model", "name"), "kernel": ("kernel", "name")}
"""Kind of component -> block of an experiment that describes it, and the key of the block that names it."""

OTHER_FILES = ("base", "options", "targets")
"""Files in these folders that are not components."""


def list_components(kind: str) -> list[str]:
    """Return the names of all components of a kind, sorted."""
    folder = _ROOT / PACKAGES[kind]
    found = {p.stem for p in folder.glob("*.py") if p.stem not in OTHER_FILES and not p.stem.startswith("_")}
    if kind in ("analysis", "model"):
        found |= {p.parent.name for p in folder.glob(f"*/{kind}.py")}
    return sorted(found)


def component_path(kind: str, name: str) -> Path:
    """Return the source file of a component; ``module:attribute`` is looked up on the Python path.

    Raises:
        ConfigError: no such component; the message names the nearest.
    """
    if ":" in name:
        return _external_path(kind, name)
    file = _ROOT / PACKAGES[kind] / f"{name}.py"
    found = file if os.path.isfile(file) else file.with_suffix("") / f"{kind}.py"
    # Listing all files would take longer, and planning asks for the components of every job.
    if not (name.isidentifier() and name not in OTHER_FILES and name[0] != "_" and os.path.isfile(found)):
        raise ConfigError(f"unknown {kind} '{name}': {suggest(name, list_components(kind))}")
    return found


def component_files(kind: str, config: Mapping[str, Any]) -> list[Path]:
    """Return the source files that a component's block of the configuration names.

    These are its own, its metric's, and those of functions that its options name.
    """
    name = config[BLOCKS[kind][1]]
    if ":" in name:
        given = config.get("options", {})
        metric = given.get("metric")
        # Its class of options is not imported for planning, so any text of this form whose module exists counts.
        texts = [text for text in given.values() if isinstance(text, str) and re.fullmatch(CODE_PATTERN, text)]
        named = [file for text in texts if (file := _find_module(text)) is not None]
    else:
        options = options_class(kind, name)
        metric = config.get("metric", getattr(options.model_fields.get("metric"), "default", None))
        named = [_external_path("function", text) for _, text in code_names(options, config)]
    # Any other name is a configuration error, which is reported elsewhere. The program chooses for `auto`.
    metrics = [each for each in (*METRICS, AUTO) if metric in (each, AUTO)] if kind == "kernel" else []
    return [component_path(kind, name), *map(metric_path, metrics), *dict.fromkeys(named)]


def _find_module(name: str) -> Path | None:
    """Return the file of the module of ``module:attribute``; None if there is none on the Python path."""
    parts = name.partition(":")[0].split(".")
    return next(filter(None, (file_in(entry, parts) for entry in python_path())), None)


def _external_path(kind: str, name: str) -> Path:
    if (found := _find_module(name)) is None:
        raise ConfigError(
            f"unknown {kind} '{name}': no module {name.partition(':')[0]} on the Python path",
            "install your package into .venv, or start from the folder that holds it",
        )
    return found


@functools.cache
def parse_classes(path: Path) -> list[ast.ClassDef]:
    """Return the classes of a file as syntax trees."""
    return [node for node in parse_file(path).body if isinstance(node, ast.ClassDef)]


def forget_files() -> None:
    """Forget the components read so far, which may have been edited, in a process that plans several times."""
    parse_classes.cache_clear()


def options_class(kind: str, name: str) -> type[Settings]:
    """Return the class of a component's options.

    It is ``SomeNameOptions`` in ``options.py`` of its kind. A component without a class there has ``Options`` in its own
    module, which is then imported.

    Raises:
        ConfigError: the component or the class does not exist.
    """
    path = component_path(kind, name)
    found: object = None
    if ":" not in name:
        shared = importlib.import_module(f"bayesmesh.{PACKAGES[kind].replace('/', '.')}.options")
        found = getattr(shared, f"{''.join(map(str.capitalize, name.split('_')))}Options", None)
    if found is None:
        found = getattr(_import_module(kind, name), "Options", None)
    if not _is_subclass(found, Settings):
        raise ConfigError(
            f"{path}: no class Options(Settings)", "add `class Options(Settings): ...`, empty if there are none"
        )
    return found


def resolve_component(kind: str, name: str, options: Mapping[str, object]) -> tuple[type[Any], Settings]:
    """Return the class of a component and its validated options, from which it is made.

    Raises:
        ConfigError: the component does not exist.
        ValidationError: the options are not those of its class.
    """
    found = options_class(kind, name).model_validate(dict(options))
    for _, code in code_names(type(found), options):
        # Not when the function is first called: that may be in a traced call, whose arrays a module must not keep.
        with explaining([_external_path("function", code)]):
            load_named(code)
    return load_component(kind, name), found


def load_component(kind: str, name: str) -> type[Any]:
    """Import a component and return its class: the one subclass of the contract that its file defines.

    Raises:
        ConfigError: the file defines none, or several; or the named attribute does not exist; or a trait or method is misspelt.
    """
    path = component_path(kind, name)
    # The contract is in the file base.py of the first folder.
    base = importlib.import_module(f"bayesmesh.{PACKAGES[kind].partition('/')[0]}.base")
    contract: type[Any] = getattr(base, kind.capitalize())
    if ":" in name:
        with explaining([path]):
            component = _load_named(kind, name)
            if not _is_subclass(component, contract):
                named = f"{contract.__module__}.{contract.__name__}"
                raise ConfigError(
                    f"{kind} '{name}' is not a subclass of {named}",
                    f"derive a class from {named}; `bayesmesh new {kind} NAME` writes one to begin with",
                )
            return refuse_misspelt_names(path, component, contract)
    module = _import_module(kind, name)
    found = [c for c in vars(module).values() if _is_subclass(c, contract) and c.__module__ == module.__name__]
    if len(found) > 1:
        # A base class for others to derive from is not the component.
        found = [c for c in found if not inspect.isabstract(c)]
    if len(found) != 1:
        raise ConfigError(
            f"{path}: {len(found)} subclasses of {contract.__name__}; define exactly one",
            "leave one in the file",
        )
    return refuse_misspelt_names(path, found[0], contract)


def _import_module(kind: str, name: str) -> ModuleType:
    """Import the module of a component."""
    path = component_path(kind, name)
    with explaining([path]):
        if ":" in name:
            _load_named(kind, name)
            return importlib.import_module(name.partition(":")[0])
        return importlib.import_module(".".join(["bayesmesh", *path.relative_to(_ROOT).with_suffix("").parts]))


def _is_subclass[T](value: object, contract: type[T]) -> TypeGuard[type[T]]:
    return isinstance(value, type) and issubclass(value, contract)


def _load_named(kind: str, name: str) -> object:
    try:
        return load_named(name)
    except ConfigError as error:
        raise ConfigError(f"{kind} {error.message}", error.remedy) from error
