"""Reads configuration files as data: safe, bounded, without duplicate keys, and with messages that say what to do."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.experiment.experiment import RESERVED_NAMES, ExperimentBase, RunSettings, experiment_class
from bayesmesh.experiment.explain import explain
from bayesmesh.experiment.fingerprint import source_closure
from bayesmesh.experiment.registry import OFFERS, component_path, list_components, read_offers, read_options
from bayesmesh.experiment.settings import NAME_PATTERN

__all__ = ["load_all", "load_experiment", "load_run", "read_yaml"]

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 20


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, bounded, without aliases (they can blow up) and with duplicate keys as errors.

    The loader in Python, not the one in C: that one composes nodes by itself, and none of the checks would be made.
    Plain words mean what they mean in YAML 1.2: `1e-3` is a number, `no` and `010` are words.
    """

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


_StrictLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


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
        value = yaml.load(raw.decode("utf-8-sig"), Loader=_StrictLoader)  # noqa: S506 - a safe loader, made stricter
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text at byte {error.start}") from error
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{path}: {error.reason} at character {error.position}") from error
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
        raise explain(path, error, RunSettings) from error


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
        experiment = experiment_class().model_validate(value)
    except ValidationError as error:
        raise explain(path, error, experiment_class()) from error
    _check_external(path, experiment)
    _check_offers(path, experiment)
    return experiment


def _check_external(path: Path, experiment: Any) -> None:
    """Hold the options of a model `module:attribute` to its own class, and read all its code, before any job starts."""
    if ":" not in experiment.model.name:
        return
    try:
        file = component_path("model", experiment.model.name)
        options = read_options(file)
        source_closure([file])
    except ConfigError as error:
        raise ConfigError(f"{path}: key 'model.name': {error.message}", error.remedy) from error
    try:
        options.model_validate(experiment.model.options)
    except ValidationError as error:
        raise explain(path, error, options, under="model.options") from error


def _check_offers(path: Path, experiment: Any) -> None:
    """Refuse what data and model are known not to offer; what they do not declare is found out when compiling."""
    chosen = {"source": experiment.data.source, "model": experiment.model.name}
    for key in (key for key in OFFERS if getattr(experiment, key) is not None):
        for kind, name in chosen.items():
            offers = read_offers(kind, name)
            if offers is not None and key not in offers:
                offered = (
                    f"it offers {' and '.join(offers)}" if offers else "it offers neither averaging nor recommendation"
                )
                raise ConfigError(f"{path}: key '{key}': not with {kind} '{name}': {offered}", _other_components(key))


def _other_components(key: str) -> str:
    fitting = {k: [n for n in list_components(k) if key in (read_offers(k, n) or ())] for k in ("source", "model")}
    return (
        f"remove the key '{key}', or take data and a model that offer it"
        f" (sources: {', '.join(fitting['source'])}; models: {', '.join(fitting['model'])}), for example\n"
        f"    data:\n      source: {fitting['source'][0]}\n    model:\n      name: {fitting['model'][0]}"
    )


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
