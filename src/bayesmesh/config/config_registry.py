"""Find data sources, models, kernels and analyses by their files, and reads their options without running them.

A component is one file, ``<name>.py``, in its package; a model or an analysis may also be a folder ``<name>/`` with its
class in ``model.py`` or ``analysis.py``, and options of an analysis in ``settings.py``. Its class ``Options`` (a `Settings`) is taken from the source
text, so that a configuration is checked in milliseconds and without JAX, TFP or TFDS. The class may therefore use
only the names in `_IN_OPTIONS`. A source, a model or a kernel
may also be ``module:attribute`` of the user's own package.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import Field, PydanticUserError
from pydantic_core import SchemaError

from bayesmesh.config.config_blocks import (
    AUTO,
    METRICS,
    HamiltonianSettings,
    MetricName,
    RestartingSettings,
    metric_path,
)
from bayesmesh.config.config_refit_settings import Folds, LeftOut, Refits
from bayesmesh.config.config_source_code import file_in, forget_imports, parse_file, python_path, statements
from bayesmesh.config.misspelt_names import refuse_misspelt_names
from bayesmesh.config.named_code import load_named
from bayesmesh.config.prior_texts import PriorText
from bayesmesh.config.settings import NO_SOURCE, Argument, CodeName, Files, Settings, code_names
from bayesmesh.config.user_code import explaining
from bayesmesh.errors import ConfigError, suggest

_ROOT = Path(__file__).resolve().parent.parent

PACKAGES: dict[str, str] = {"source": "data/sources", "model": "models", "kernel": "kernels", "analysis": "analyses"}
"""Kind of component -> folder of its files, relative to the package."""

_IN_OPTIONS: dict[str, Any] = {
    "Settings": Settings, "HamiltonianSettings": HamiltonianSettings, "RestartingSettings": RestartingSettings,
    "Argument": Argument, "CodeName": CodeName, "Files": Files, "PriorText": PriorText, "MetricName": MetricName, "Field": Field, "Literal": Literal, "Annotated": Annotated,
    "Refits": Refits, "Folds": Folds, "LeftOut": LeftOut,
}  # fmt: skip
"""Names that a class ``Options`` may use."""

_IN_DESCRIPTIONS: dict[str, Any] = {"_Field": Field, "_Annotated": Annotated}


def list_components(kind: str) -> list[str]:
    """Return the names of all components of a kind, sorted."""
    folder = _ROOT / PACKAGES[kind]
    found = {p.stem for p in folder.glob("*.py") if p.stem != "base" and not p.stem.startswith("_")}
    if kind in ("analysis", "model"):
        found |= {p.parent.name for p in folder.glob(f"*/{kind}.py") if _seems_component(p)}
    return sorted(found)


def _seems_component(path: Path) -> bool:
    """Return whether a file has options or cannot be read; only experiments that name it report the latter."""
    try:
        return _has_options(path)
    except ConfigError:
        return True


def list_readable(kind: str) -> list[str]:
    """Return the components of a kind whose options can be read: a mistake in one file affects only experiments that name it."""
    found = []
    for name in list_components(kind):
        with contextlib.suppress(ConfigError):
            read_options(component_path(kind, name))
            found.append(name)
    return found


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
    if not (name.isidentifier() and name != "base" and name[0] != "_" and _is_component(kind, found)):
        raise ConfigError(f"unknown {kind} '{name}': {suggest(name, list_components(kind))}")
    return found


def _is_component(kind: str, path: Path) -> bool:
    """Return whether a file exists and, in a folder of its own, has options."""
    return os.path.isfile(path) and (path.stem != kind or _has_options(path))


def _has_options(path: Path) -> bool:
    """Return whether a file, or `settings.py` beside it, has a class ``Options``."""
    files = (each for each in (path, path.with_name("settings.py")) if each.is_file())
    return any(node.name == "Options" for each in files for node in parse_classes(each))


def component_files(kind: str, config: Mapping[str, Any]) -> list[Path]:
    """Return the source files that a component's block of the configuration names.

    These are its own, its metric's, and those of functions that its options name.
    """
    name = config["source" if kind == "source" else "name"]
    files = [component_path(kind, name)]
    if not _has_options(files[0]):
        return files
    options = read_options(files[0])
    given = config.get("options", {}) if ":" in name else config
    if kind == "kernel" and "metric" in options.model_fields:
        metric = given.get("metric", options.model_fields["metric"].default)
        # Any other name is a configuration error, which is reported elsewhere.
        files += [metric_path(metric)] if metric in (*METRICS, AUTO) else []
    named = [_external_path("function", value) for _, value in code_names(options, given)]
    return [*files, *dict.fromkeys(named)]


def check_function(name: str) -> None:
    """Check from source text that the file of a function ``module:attribute`` exists and defines the attribute.

    Raises:
        ConfigError: it does not; the message names the nearest.
    """
    _check_defined("function", name, ast.FunctionDef)


def _check_defined(kind: str, name: str, definition: type[ast.FunctionDef | ast.ClassDef]) -> None:
    """Raise if the file of a name ``module:attribute`` does not bind the attribute; suggest what it defines of that kind."""
    path, attribute = _external_path(kind, name), name.partition(":")[2]
    bound = list(statements(parse_file(path), into_definitions=False))
    found = {each for node in bound for each in _defined(node)}
    if attribute not in found and "*" not in found:
        meant = [node.name for node in bound if isinstance(node, definition)]
        raise ConfigError(
            f"'{name}': {path} does not define {attribute}", suggest(attribute, meant) if meant else "define it there"
        )


def check_class(kind: str, name: str) -> None:
    """Check from source text that the file of a component ``module:attribute`` defines the attribute, other than as a function.

    Raises:
        ConfigError: it does not; the message names the nearest.
    """
    path, attribute = _external_path(kind, name), name.partition(":")[2]
    classes = [node.name for node in parse_classes(path)]
    functions = [node.name for node in parse_file(path).body if isinstance(node, ast.FunctionDef)]
    if attribute in functions and attribute not in classes:
        article = "an" if kind[0] in "aeiou" else "a"
        raise ConfigError(f"'{name}' is a function, and {article} {kind} is a class", _subclass_remedy(kind))
    _check_defined(kind, name, ast.ClassDef)


def _subclass_remedy(kind: str) -> str:
    base = f"bayesmesh.{PACKAGES[kind].partition('/')[0]}.base"
    return f"derive a class from {base}.{kind.capitalize()}; `bayesmesh new {kind} NAME` writes one to begin with"


def _defined(node: ast.AST) -> list[str]:
    """Return the names that a statement of a module binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
    return []


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
    """Return the classes of a file as syntax trees."""
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
    name = path.parent.name if path.stem in ("settings", "model") else path.stem
    namespace: dict[str, Any] = {**_IN_OPTIONS, **_IN_DESCRIPTIONS, "__name__": f"options_of_{name}"}
    described = ast.fix_missing_locations(ast.Module(body=[_with_descriptions(found[0])], type_ignores=[]))
    code = compile(described, str(path), "exec", dont_inherit=True)
    try:
        exec(code, namespace)  # the project's own source, not user input
    except (NameError, TypeError, ValueError, AttributeError, PydanticUserError, SchemaError) as error:
        raise ConfigError(f"{path}: class Options: {error}", f"use only {', '.join(_IN_OPTIONS)} in it") from error
    options: type[Settings] = namespace["Options"]
    if not issubclass(options, Settings):
        raise ConfigError(f"{path}: class Options is no Settings", "write `class Options(Settings): ...`")
    return options


def forget_files() -> None:
    """Forget the components read so far, which may have been edited, in a process that plans several times."""
    parse_classes.cache_clear()
    read_options.cache_clear()
    forget_imports()


def _with_descriptions(options: ast.ClassDef) -> ast.ClassDef:
    """Return a class with the string below each field as its description.

    Pydantic would look for the source of a class in all modules, which takes longer than everything else here.
    """
    made = copy.copy(options)
    made.body = [*map(_described, options.body, [*options.body[1:], None])]
    if options.bases:
        made.keywords = [*options.keywords, *(ast.keyword(k, ast.Constant(v)) for k, v in NO_SOURCE.items())]
    return made


def _described(statement: ast.stmt, below: ast.stmt | None) -> ast.stmt:
    """Return a field with the string below it in its type, as ``Annotated[type, Field(description=string)]``."""
    match statement, below:
        case ast.AnnAssign(), ast.Expr(ast.Constant(str(text))):
            field = ast.Call(_name("_Field"), [], [ast.keyword("description", ast.Constant(inspect.cleandoc(text)))])
            made = copy.copy(statement)
            made.annotation = ast.Subscript(
                _name("_Annotated"), ast.Tuple([statement.annotation, field], ast.Load()), ast.Load()
            )
            return made
    return statement


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def resolve_component(kind: str, name: str, options: Mapping[str, object]) -> tuple[type[Any], Settings]:
    """Return the class of a component and its validated options, from which it is made.

    Raises:
        ConfigError: the component does not exist.
        ValidationError: the options are not those of its class.
    """
    found = read_options(component_path(kind, name)).model_validate(dict(options))
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
            return refuse_misspelt_names(path, _load_external(kind, name, contract), contract)
    with explaining([path]):
        module = importlib.import_module(".".join(["bayesmesh", *path.relative_to(_ROOT).with_suffix("").parts]))
    found = [c for c in vars(module).values() if _is_subclass(c, contract) and c.__module__ == module.__name__]
    if len(found) > 1:
        # A base class for others to derive from is not the component.
        found = [c for c in found if not inspect.isabstract(c)]
    if len(found) != 1:
        raise ConfigError(
            f"{path}: {len(found)} subclasses of {contract.__name__}; a component is exactly one",
            "leave one in the file",
        )
    return refuse_misspelt_names(path, found[0], contract)


def _is_subclass(value: object, contract: type) -> TypeGuard[type]:
    return isinstance(value, type) and issubclass(value, contract)


def _load_external(kind: str, name: str, contract: type) -> type[Any]:
    """Import ``module:attribute`` from the current folder or the Python path."""
    try:
        component = load_named(name)
    except ConfigError as error:
        raise ConfigError(f"{kind} {error.message}", error.remedy) from error
    if not _is_subclass(component, contract):
        raise ConfigError(
            f"{kind} '{name}' is not a subclass of {contract.__module__}.{contract.__name__}", _subclass_remedy(kind)
        )
    return component
