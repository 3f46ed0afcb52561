"""Reads configuration files as data: safe, bounded, without duplicate keys, and with messages that say what to do."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.experiment.experiment import RESERVED_NAMES, ExperimentBase, RunSettings, experiment_class
from bayesmesh.experiment.registry import list_components
from bayesmesh.experiment.settings import NAME_PATTERN, Settings

__all__ = ["load_all", "load_experiment", "load_run", "read_yaml"]

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 20

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]
    """PyYAML's safe loader, without aliases (they can blow up) and with duplicate keys as errors."""

    nodes = 0
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.get_event()
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not accepted", problem_mark=event.start_mark)
        self.nodes += 1
        self.depth += 1
        if self.nodes > MAX_NODES or self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_NODES} values or {MAX_DEPTH} levels", problem_mark=self.peek_event().start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is not a word", problem_mark=key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key '{key}', first given in line {seen[key]}", problem_mark=key_node.start_mark
                )
            if key.startswith("__"):
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key}' is not accepted: configuration is data, never code",
                    problem_mark=key_node.start_mark,
                )
            seen[key] = key_node.start_mark.line + 1
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file holds.

    Raises:
        ConfigError: missing, too large, not UTF-8, not YAML, not a mapping, with an alias, a tag, a duplicate key or
            a key that begins with two underscores; names file and line.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: {len(raw)} bytes are more than the {MAX_BYTES} that a configuration may have")
    try:
        value = yaml.load(raw.decode("utf-8"), Loader=_StrictLoader)  # noqa: S506 - a safe loader, made stricter
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text at byte {error.start}") from error
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a configuration is a mapping of keys, this is {type(value).__name__}")
    return value


def load_run(path: Path) -> RunSettings:
    """Return the settings of `config.yaml`.

    Raises:
        ConfigError: see `read_yaml`; or an unknown or wrong key.
    """
    try:
        return RunSettings.model_validate(read_yaml(path))
    except ValidationError as error:
        raise _explain(path, error, RunSettings) from error


def load_experiment(path: Path) -> ExperimentBase:
    """Return the experiment that one file holds; its name is the file's.

    Raises:
        ConfigError: see `read_yaml`; or a bad name, an unknown key or component, a value out of range, or keys that
            do not go together.
    """
    if not re.fullmatch(NAME_PATTERN, path.stem):
        raise ConfigError(f"{path}: '{path.stem}' is no name for an experiment", f"names match {NAME_PATTERN}")
    if path.stem in RESERVED_NAMES:
        raise ConfigError(f"{path}: '{path.stem}' is taken", f"reserved: {', '.join(sorted(RESERVED_NAMES))}")
    value = read_yaml(path)
    try:
        return experiment_class().model_validate(value)
    except ValidationError as error:
        raise _explain(path, error, experiment_class()) from error


def load_all(config: Path) -> tuple[RunSettings, dict[str, ExperimentBase]]:
    """Return `config/config.yaml` and every experiment beside it, in sorted order.

    Args:
        config: the folder that holds ``config.yaml`` and ``experiments/``.

    Raises:
        ConfigError: any file is wrong, or `config.yaml` names an experiment that has no file.
    """
    run = load_run(config / "config.yaml")
    folder = config / "experiments"
    listed = [(key, name) for key in ("experiments", "reproduce") for name in getattr(run, key)]
    paths = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    for key, name in listed:
        if name not in paths:
            raise ConfigError(
                f"{config / 'config.yaml'}: {key}: no experiment '{name}' ({folder / name}.yaml is not there): {suggest(name, paths)}"
            )
    return run, {name: load_experiment(path) for name, path in paths.items()}


def _explain(path: Path, error: ValidationError, cls: type[Settings]) -> ConfigError:
    """One message for the first error, with the nearest valid name and the YAML to paste."""
    details = error.errors()
    first = details[0]
    location = [str(part) for part in first["loc"] if not _is_tag(str(part), first["loc"])]
    key = ".".join(location) or "(top level)"
    kind = first["type"]
    remedy = ""
    if kind == "extra_forbidden":
        message = f"unknown key '{key}'"
        remedy = suggest(location[-1], _valid_keys(cls, list(first["loc"][:-1])))
    elif kind == "union_tag_invalid" or kind == "union_tag_not_found":
        component = {"data": "source", "model": "model", "kernel": "kernel"}[location[0]]
        word = "source" if component == "source" else "name"
        given = first["input"].get(word) if isinstance(first["input"], Mapping) else None
        key = f"{location[0]}.{word}"
        names = list_components(component)
        message = f"key '{key}': " + (f"unknown {component} '{given}'" if given is not None else "is missing")
        remedy = (
            suggest(str(given), names) if given is not None else "valid: " + ", ".join(names)
        ) + f"; for example\n    {location[0]}:\n      {word}: {names[0]}"
    elif kind == "missing":
        message = f"key '{key}' is missing"
        remedy = "add\n" + _as_yaml(location, "...")
    elif kind == "value_error":
        message = first["msg"].removeprefix("Value error, ")
    elif kind == "string_pattern_mismatch" and location[0] in ("experiments", "reproduce"):
        message = f"key '{key}': {first['input']!r} is no name: names match {NAME_PATTERN}"
    else:
        message = f"key '{key}': {first['msg'][0].lower()}{first['msg'][1:]} (found {first['input']!r:.80})"
        remedy = _describe(cls, list(first["loc"]))
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return ConfigError(f"{path}: {message}{more}", remedy)


def _is_tag(part: str, loc: tuple[int | str, ...]) -> bool:
    """Pydantic puts the variant's name, or the kind of a union's arm, into the location; the user never wrote it."""
    position = [str(p) for p in loc].index(part)
    variant = (
        position == 1 and str(loc[0]) in ("data", "model", "kernel") and (":" in part or part in _all_components())
    )
    return variant or part in ("MeshSettings", "int", "literal['auto']", "constrained-int")


def _all_components() -> set[str]:
    return {name for kind in ("source", "model", "kernel") for name in list_components(kind)}


def _class_at(cls: type[Settings], loc: list[int | str]) -> type[Settings] | None:
    """Follow a location down to the settings class that it lies in."""
    current: Any = cls
    for part in loc:
        if isinstance(current, type) and issubclass(current, Settings):
            field = current.model_fields.get(str(part))
            if field is None:
                return None
            current = field.annotation
        elif not isinstance(current, type):
            arms = list(getattr(current, "__args__", ()))
            arms = [getattr(a, "__origin__", a) for a in arms]
            named = [
                a for a in arms if isinstance(a, type) and (a.__name__ == part or a.__name__.startswith(f"{part}_"))
            ]
            if not named:
                settings = [a for a in arms if isinstance(a, type) and issubclass(a, Settings)]
                return _class_at(settings[0], loc[loc.index(part) :]) if len(settings) == 1 else None
            current = named[0]
    if not isinstance(current, type):
        settings = [a for a in getattr(current, "__args__", ()) if isinstance(a, type) and issubclass(a, Settings)]
        current = settings[0] if len(settings) == 1 else None
    return current if isinstance(current, type) and issubclass(current, Settings) else None


def _valid_keys(cls: type[Settings], loc: list[int | str]) -> list[str]:
    found = _class_at(cls, loc)
    return list(found.model_fields) if found else []


def _describe(cls: type[Settings], loc: list[int | str]) -> str:
    names = [part for part in loc if isinstance(part, str)]
    for length in range(len(names), 0, -1):
        owner = _class_at(cls, list(names[: length - 1]))
        if owner and names[length - 1] in owner.model_fields:
            return f"{names[length - 1]}: {owner.model_fields[names[length - 1]].description}"
    return ""


def _as_yaml(location: list[str], value: str) -> str:
    lines = ["    " + "  " * depth + f"{part}:" for depth, part in enumerate(location)]
    return "\n".join(lines) + f" {value}"
