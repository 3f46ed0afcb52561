"""Load the configuration and check every file, alone and against the others, before any job starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bayesmesh.config.declarations import AnalysisDeclaration, declared, read_offers
from bayesmesh.config.experiment import RESERVED_NAMES, ExperimentBase, RunSettings, experiment_class
from bayesmesh.config.explain import explain
from bayesmesh.config.named_experiments import check_named
from bayesmesh.config.registry import component_path, list_components, read_options
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.config.source_imports import source_closure
from bayesmesh.config.yaml_reader import EXAMPLE, read_yaml
from bayesmesh.errors import ConfigError, suggest

__all__ = ["load_all", "load_experiment", "load_run", "refuse_overrides"]


def load_run(path: Path) -> RunSettings:
    """Return the settings of `config.yaml`.

    Raises:
        ConfigError: see `read_yaml`; or a key is unknown or invalid.
    """
    try:
        return RunSettings.model_validate(read_yaml(path))
    except ValidationError as error:
        raise explain(path, error, RunSettings) from error


def load_experiment(path: Path) -> ExperimentBase:
    """Return the experiment of a file; its name is that of the file.

    Raises:
        ConfigError: see `read_yaml`; or an invalid name, an unknown key or component, a value out of range, or
            conflicting keys.
    """
    if not re.fullmatch(NAME_PATTERN, path.stem):
        raise ConfigError(f"{path}: '{path.stem}' is not a valid name for an experiment", f"names match {NAME_PATTERN}")
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
    """Validate the options of a model `module:attribute` and read all its code, before any job starts."""
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


def _check_offers(path: Path, experiment: ExperimentBase, others: Mapping[str, ExperimentBase] | None = None) -> None:
    """Refuse analyses that data or model declare not to offer; undeclared offers are checked when compiling.

    Args:
        path: file of the experiment.
        experiment: the experiment.
        others: experiments that its analyses may name; if None, only its own data and model are checked.
    """
    for analysis in map(declared, experiment.analyses()):
        if others is None:
            looked_at = {f"key '{analysis.name}'": experiment}
        else:
            named = experiment.named_experiments(analysis.name)
            looked_at = {f"key '{analysis.name}.experiments': '{name}'": others[name] for name in named}
        for where, each in looked_at.items():
            if problem := _misfit(analysis, each):
                raise ConfigError(f"{path}: {where}: {problem}", _other_components(analysis))


def _misfit(analysis: AnalysisDeclaration, experiment: Any) -> str:
    """Return a message about the component that does not offer what an analysis needs; empty if none."""
    for kind, name in {"source": experiment.data.source, "model": experiment.model.name}.items():
        offers, needs = read_offers(kind, name), analysis.needs(kind)
        if offers is not None and not set(needs) <= set(offers):
            offered = f"it offers {' and '.join(offers)}" if offers else f"it does not offer {' and '.join(needs)}"
            return f"not with {kind} '{name}': {offered}"
    return ""


def _other_components(analysis: AnalysisDeclaration) -> str:
    fitting = {
        kind: [n for n in list_components(kind) if set(analysis.needs(kind)) <= set(read_offers(kind, n) or ())]
        for kind in ("source", "model")
    }
    remove = f"remove the key '{analysis.name}'"
    if not all(fitting.values()):
        return remove
    return (
        f"{remove}, or use data and a model that offer it"
        f" (sources: {', '.join(fitting['source'])}; models: {', '.join(fitting['model'])}), for example\n"
        f"    data:\n      source: {fitting['source'][0]}\n    model:\n      name: {fitting['model'][0]}"
    )


def _experiment_files(folder: Path) -> dict[str, Path]:
    """Return name -> file of all experiments; a file with a similar ending is an error."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder", f"create it, and write one file per experiment\n{EXAMPLE}")
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in files:
        if path.suffix != ".yaml" and re.search(r"\.(ya?ml|json|toml)(\.txt)?$", path.name, re.IGNORECASE):
            raise ConfigError(
                f"{path}: an experiment is a file NAME.yaml; this one would be ignored",
                f"rename it to {path.name.partition('.')[0]}.yaml, or move it out of {folder}",
            )
    return {path.stem: path for path in files if path.suffix == ".yaml"}


def refuse_overrides(given: Any, own: Path) -> None:
    """Refuse `--config` and `--configfile` of Snakemake, also in a profile, because nothing would read them.

    Args:
        given: Snakemake's settings, with ``config``, the keys and values, and ``configfiles``, the files.
        own: the project's ``config.yaml``, which is allowed because it is read anyway.

    Raises:
        ConfigError: anything else was given; the message names it.
    """
    remedy = f"write it into {own} or into {own.parent}/experiments/NAME.yaml: files are checked and compared with the last run"
    if given.config:
        raise ConfigError(f"--config {' '.join(f'{k}={v}' for k, v in given.config.items())}: is not read", remedy)
    other = [file for file in given.configfiles if Path(file).absolute() != own.absolute()]
    if other:
        raise ConfigError(f"--configfile {other[0]}: is not read; only {own} is", remedy)


def load_all(config: Path) -> tuple[RunSettings, dict[str, ExperimentBase]]:
    """Return `config/config.yaml` and every experiment beside it, in sorted order.

    Args:
        config: the folder with ``config.yaml`` and ``experiments/``.

    Raises:
        ConfigError: any file is invalid, or `config.yaml` names an experiment that has no file.
    """
    run = load_run(config / "config.yaml")
    folder = config / "experiments"
    listed = [
        (key, name) for key in ("experiments", "reproduce", "reproduce_accelerated") for name in getattr(run, key)
    ]
    paths = _experiment_files(folder)
    for key, name in listed:
        if name not in paths:
            raise ConfigError(
                f"{config / 'config.yaml'}: {key}: no experiment '{name}' ({folder / name}.yaml does not exist): {suggest(name, paths)}"
            )
    experiments = {name: load_experiment(path) for name, path in paths.items()}
    check_named(paths, experiments)
    for name, experiment in experiments.items():
        _check_offers(paths[name], experiment, experiments)
    return run, experiments
