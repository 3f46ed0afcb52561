"""Finds data sources, models and kernels by their files, and reads their options without running them.

A component is one file, ``<name>.py``, in its package. Its class ``Options`` (a `Settings`) is taken from the source
text, so that a configuration is checked in milliseconds and without JAX, TFP or TFDS. The class must therefore use
nothing but ``Settings``, ``Field``, ``Literal`` and ``Annotated``. A model may also be ``module:attribute`` of the
user's own package.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field, PydanticUserError
from pydantic_core import SchemaError

from bayesmesh.config.settings import Settings
from bayesmesh.config.source_imports import python_path
from bayesmesh.errors import ConfigError, suggest

__all__ = [
    "OFFERS",
    "PACKAGES",
    "component_path",
    "list_components",
    "load_component",
    "read_offers",
    "read_options",
    "resolve_component",
]

_ROOT = Path(__file__).resolve().parent.parent

PACKAGES: dict[str, str] = {"source": "data/sources", "model": "models", "kernel": "kernels"}
"""Kind of component -> folder of its files, relative to the package."""

OFFERS = ("averaging", "recommendation")
"""What a source or a model may offer beside sampling: top-level keys of an experiment."""


def list_components(kind: str) -> list[str]:
    """Return the names of all components of a kind, sorted."""
    folder = _ROOT / PACKAGES[kind]
    return sorted(p.stem for p in folder.glob("*.py") if p.stem != "base" and not p.stem.startswith("_"))


def component_path(kind: str, name: str) -> Path:
    """Return the source file of a component; ``module:attribute`` is looked up on the Python path.

    Raises:
        ConfigError: no such component; the message names the nearest.
    """
    if ":" in name:
        return _external_path(kind, name)
    if name not in list_components(kind):
        raise ConfigError(f"unknown {kind} '{name}': {suggest(name, list_components(kind))}")
    return _ROOT / PACKAGES[kind] / f"{name}.py"


def _external_path(kind: str, name: str) -> Path:
    module = name.partition(":")[0]
    relative = Path(*module.split("."))
    for entry in python_path():
        for candidate in (entry / relative.with_suffix(".py"), entry / relative / "__init__.py"):
            if candidate.is_file():
                return candidate
    raise ConfigError(
        f"unknown {kind} '{name}': no module {module} on the Python path",
        "install your package into .venv, or start from the folder that holds it",
    )


@functools.cache
def _classes(path: Path) -> list[ast.ClassDef]:
    """Return the classes of a file, as syntax."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise ConfigError(f"{path}, line {error.lineno}: no valid Python: {error.msg}") from error
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def read_offers(kind: str, name: str) -> tuple[str, ...] | None:
    """Return what the class of a source or a model declares in ``offers``, from its source text alone.

    None when its file does not say: the class may inherit it, or leave it to the compile stage to find out.

    Raises:
        ConfigError: ``offers`` is no tuple of words, or a word is not one of `OFFERS`.
    """
    path, attribute = component_path(kind, name), name.partition(":")[2]
    declared = [
        value
        for node in _classes(path)
        if attribute in ("", node.name)
        for value in map(_value_of_offers, node.body)
        if value is not None
    ]
    if len(declared) != 1:
        return None
    try:
        offers = ast.literal_eval(declared[0])
    except ValueError:
        offers = None
    where = f"{path}, line {declared[0].lineno}: offers"
    if not isinstance(offers, tuple) or not all(isinstance(word, str) for word in offers):
        raise ConfigError(
            f"{where}: is no tuple of words, written out", 'for example `offers = ("averaging",)`, or `()`'
        )
    for word in offers:
        if word not in OFFERS:
            raise ConfigError(f"{where}: unknown word '{word}'", suggest(word, OFFERS))
    return offers


def _value_of_offers(statement: ast.stmt) -> ast.expr | None:
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return None
    is_named = any(isinstance(target, ast.Name) and target.id == "offers" for target in targets)
    return statement.value if is_named else None


@functools.cache
def read_options(path: Path) -> type[Settings]:
    """Build the class ``Options`` of a component from its source text alone.

    Raises:
        ConfigError: the file has no such class, or the class needs a name that is not allowed in it.
    """
    found = [node for node in _classes(path) if node.name == "Options"]
    if not found:
        raise ConfigError(
            f"{path}: no class Options(Settings)", "add `class Options(Settings): ...`, empty if there are none"
        )
    namespace: dict[str, Any] = {
        "Settings": Settings,
        "Field": Field,
        "Literal": Literal,
        "Annotated": Annotated,
        "__name__": f"options_of_{path.stem}",
    }
    code = compile(ast.Module(body=[found[0]], type_ignores=[]), str(path), "exec", dont_inherit=True)
    try:
        exec(code, namespace)  # the project's own source, not user input
    except (NameError, TypeError, ValueError, AttributeError, PydanticUserError, SchemaError) as error:
        raise ConfigError(
            f"{path}: class Options: {error}", "use only Settings, Field, Literal and Annotated in it"
        ) from error
    options: type[Settings] = namespace["Options"]
    if not issubclass(options, Settings):
        raise ConfigError(f"{path}: class Options is no Settings", "write `class Options(Settings): ...`")
    return options


def resolve_component(kind: str, name: str, options: Mapping[str, Any]) -> tuple[type[Any], Settings]:
    """Return the class of a component and its validated options, from which it is made.

    Raises:
        ConfigError: there is no such component.
        ValidationError: the options are not those of its class.
    """
    return load_component(kind, name), read_options(component_path(kind, name)).model_validate(dict(options))


def load_component(kind: str, name: str) -> type[Any]:
    """Import a component and return its class: the one subclass of the contract that its file defines.

    Raises:
        ConfigError: the file defines none, or several; or the named attribute is not there.
    """
    component_path(kind, name)
    package = PACKAGES[kind].replace("/", ".")
    contract = getattr(
        importlib.import_module("bayesmesh.data.base" if kind == "source" else f"bayesmesh.{package}.base"),
        kind.capitalize(),
    )
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        module = _import_from_here(module_name)
        if not hasattr(module, attribute):
            raise ConfigError(f"{kind} '{name}': {module_name} has no {attribute}", suggest(attribute, vars(module)))
        return _checked(kind, name, getattr(module, attribute), contract)
    module = importlib.import_module(f"bayesmesh.{package}.{name}")
    found = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, contract) and c.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(
            f"{module.__file__}: {len(found)} subclasses of {contract.__name__}; a component is exactly one"
        )
    return found[0]


def _import_from_here(module_name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module_name)
    finally:
        sys.path.pop(0)


def _checked(kind: str, name: str, component: Any, contract: type) -> type[Any]:
    if not (isinstance(component, type) and issubclass(component, contract)):
        raise ConfigError(f"{kind} '{name}' is not a subclass of {contract.__module__}.{contract.__name__}")
    return component
