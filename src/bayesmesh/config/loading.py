"""Load the configuration and check every file, alone and against the others, before any job starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bayesmesh.config.analyses import check_own_analyses, check_readable, find_clashes
from bayesmesh.config.declarations import (
    AnalysisDeclaration,
    declared,
    key_of,
    read_conditions,
    read_offers,
)
from bayesmesh.config.errors import explain
from bayesmesh.config.experiment import (
    RESERVED_NAMES,
    ExperimentBase,
    ExternalKernel,
    ExternalModel,
    ExternalSource,
    NamedBlock,
    RunSettings,
    SourceBlock,
    experiment_class,
)
from bayesmesh.config.files import list_experiment_files
from bayesmesh.config.kernel import check_kernel, resolve_start
from bayesmesh.config.refits import make_refits
from bayesmesh.config.registry import component_path, list_components
from bayesmesh.config.settings import NAME_PATTERN, code_names
from bayesmesh.config.source_code import code_digest
from bayesmesh.config.sweep import Sweep, load_members
from bayesmesh.config.yaml_reader import read_yaml
from bayesmesh.errors import ConfigError, suggest


class Configuration(NamedTuple):
    """The configuration as it was read.

    Attributes:
        run: settings of `config.yaml`.
        experiments: name -> settings of every valid experiment, including members of sweeps and refits, sorted by name.
        broken: name -> error of every invalid file of an experiment.
        sweeps: name -> sweep of every valid file with one; its members are among the experiments.
        refits: name -> names of the refits that the analyses of an experiment read.
    """

    run: RunSettings
    experiments: dict[str, ExperimentBase]
    broken: dict[str, ConfigError]
    sweeps: dict[str, Sweep]
    refits: dict[str, tuple[str, ...]]


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
    """Return the experiment of a file without a sweep; its name is that of the file.

    Raises:
        ConfigError: see `load_file`; or the file has a sweep.
    """
    experiments, sweep = load_file(path)
    if sweep is not None:
        raise ConfigError(
            f"{path}: is a sweep of {len(experiments)} experiments", f"name one of {', '.join(experiments)}"
        )
    return experiments[path.stem]


def load_file(path: Path) -> tuple[dict[str, ExperimentBase], Sweep | None]:
    """Return the experiments of a file by name, one named after the file or the members of its sweep, and the sweep.

    Raises:
        ConfigError: see `read_yaml` and `load_members`; or an invalid name, an unknown key or component, a value out of
            range, conflicting keys, or two identical members.
    """
    check_name(path, path.stem)
    content = {"title": path.stem, **read_yaml(path)}
    empty = (name for name, value in content.items() if value is None and name in list_components("analysis"))
    for name in empty:
        problem = f"{path}: key '{name}': holds nothing, so that the analysis would not run"
        raise ConfigError(problem, f"write `{name}: {{}}` to run it as it is, or remove the key")
    check_readable(path, content)
    if content.get("sweep") is None:
        return {path.stem: check_experiment(path, content)}, None
    return load_members(path, content, check_experiment)


def check_name(path: Path, name: str) -> None:
    """Check that a name is valid for an experiment.

    Args:
        path: where it was written, for the message.
        name: the name.

    Raises:
        ConfigError: it is not valid, or belongs to a target, a rule or a folder.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError(f"{path}: '{name}' is not a valid name for an experiment", f"names match {NAME_PATTERN}")
    if name in RESERVED_NAMES:
        raise ConfigError(f"{path}: '{name}' is taken", f"reserved: {', '.join(sorted(RESERVED_NAMES))}")


def check_experiment(path: Path, value: Mapping[str, object]) -> ExperimentBase:
    """Return the experiment that some keys and values describe.

    Args:
        path: where they were written, for messages.
        value: the keys and values.

    Raises:
        ConfigError: an unknown key or component, a value out of range, or conflicting keys.
    """
    try:
        experiment = experiment_class().model_validate(value)
    except ValidationError as error:
        raise explain(path, error, experiment_class()) from error
    for kind, key in (("source", "data"), ("model", "model"), ("kernel", "kernel")):
        _check_code(path, kind, key, getattr(experiment, key))
    check_own_analyses(path, experiment)
    experiment = resolve_start(experiment)
    check_kernel(path, experiment)
    _check_offers(path, experiment, {})
    return experiment


def _check_code(path: Path, kind: str, key: str, block: NamedBlock | SourceBlock) -> None:
    """Check that the modules of the user's own code exist: of a component `module:attribute`, or of functions that options name.

    They are imported by the jobs that use them: sources by `fetch`, all others by `compile`.
    """
    named = [("function", option, name) for option, name in code_names(type(block), block.model_dump())]
    if isinstance(block, ExternalSource):
        named = [(kind, "source", block.source)]
    if isinstance(block, ExternalModel | ExternalKernel):
        named = [(kind, "name", block.name)]
    for of, option, name in named:
        try:
            file = component_path(of, name)
            if of != "function":
                code_digest([file])
        except ConfigError as error:
            raise ConfigError(f"{path}: key '{key}.{option}': {error.message}", error.remedy) from error


def _check_offers(path: Path, experiment: ExperimentBase, others: Mapping[str, ExperimentBase]) -> None:
    """Refuse analyses that data or model declare not to support; the compile stage checks what they leave undeclared.

    Args:
        path: file of the experiment.
        experiment: the experiment.
        others: valid experiments that its analyses may name.
    """
    for analysis in map(declared, experiment.requested_analyses()):
        named = [name for name in experiment.named_experiments(analysis.name) if name in others]
        looked_at = {f"key '{analysis.key}.experiments': '{name}'": others[name] for name in named}
        for where, each in {f"key '{analysis.key}'": experiment, **looked_at}.items():
            if problem := _misfit(analysis, each):
                raise ConfigError(f"{path}: {where}: {problem}", _other_components(analysis))


def _misfit(analysis: AnalysisDeclaration, experiment: ExperimentBase) -> str:
    """Return a message about the component that does not offer what an analysis needs; empty if there is none."""
    for kind, name in {"source": experiment.data.source, "model": experiment.model.name}.items():
        offers, needs = read_offers(kind, name), analysis.needs(kind)
        if offers is not None and not set(needs) <= set(offers):
            offered = f"it offers {' and '.join(offers)}" if offers else f"it does not offer {' and '.join(needs)}"
            return f"not with {kind} '{name}': {offered}"
        for option, value in read_conditions(kind, name, needs).items():
            given = getattr(experiment.model if kind == "model" else experiment.data, option, value)
            if given != value:
                return f"not with {kind} '{name}' and {option} '{given}': only {option} '{value}' offers it"
    return ""


def _other_components(analysis: AnalysisDeclaration) -> str:
    fitting = {
        kind: [n for n in list_components(kind) if set(analysis.needs(kind)) <= set(read_offers(kind, n) or ())]
        for kind in ("source", "model")
    }
    if not all(fitting.values()):
        return f"remove the key '{analysis.key}'"
    return (
        f"remove the key '{analysis.key}', or use data and a model that offer it"
        f" (sources: {', '.join(fitting['source'])}; models: {', '.join(fitting['model'])}), for example\n"
        f"    data:\n      source: {fitting['source'][0]}\n    model:\n      name: {fitting['model'][0]}"
    )


def check_named(
    path: Path, name: str, experiments: Mapping[str, ExperimentBase], broken: Mapping[str, ConfigError]
) -> None:
    """Check that the experiments that an experiment's analyses name are valid, without duplicates or cycles.

    Args:
        path: file of the experiment.
        name: its name.
        experiments: name -> experiment.
        broken: name -> error of those that are not valid.

    Raises:
        ConfigError: a named experiment has no file or is not valid, is named twice, or leads back to the experiment.
    """
    for analysis in experiments[name].requested_analyses():
        named = experiments[name].named_experiments(analysis)
        where = f"{path}: key '{key_of(analysis)}.experiments'"
        for other in named:
            if other in broken:
                raise ConfigError(f"{where}: '{other}' is not valid: {broken[other].message}", broken[other].remedy)
            if other not in experiments:
                raise ConfigError(f"{where}: no experiment '{other}'", suggest(other, set(experiments) - {name}))
            if named.count(other) > 1:
                raise ConfigError(f"{where}: '{other}' is named twice", "name each experiment once")
        if circle := _circle(analysis, [name], experiments):
            raise ConfigError(
                f"{where}: the request is circular: {' -> '.join(circle)}",
                f"an analysis always reads its own experiment; name only others in '{key_of(analysis)}',"
                " and none that names this one",
            )


def _circle(analysis: str, way: list[str], experiments: Mapping[str, ExperimentBase]) -> list[str]:
    """Return a cycle from an experiment through named ones back to itself, empty if there is none."""
    for other in experiments[way[-1]].named_experiments(analysis):
        if other == way[0]:
            return [*way, other]
        if other in experiments and other not in way and (found := _circle(analysis, [*way, other], experiments)):
            return found
    return []


def refuse_folder(folder: Path) -> None:
    """Refuse a project folder whose name a shell, a search path or Snakemake would interpret as more than a name.

    Installers write the folder in double quotes into scripts, Slurm's executor writes it into its command, and Snakemake
    replaces braces in paths.

    Raises:
        ConfigError: the path holds such a character; the message shows it.
    """
    if found := "".join(sorted(set('$`"\\{}:\n') & set(str(folder)))):
        message = f"{str(folder)!r}: the path of the project holds {found!r}, which shells or Snakemake would interpret"
        raise ConfigError(message, "rename the folder; spaces and letters of any script are fine")


def refuse_overrides(given: Any, own: Path, loaded: Mapping[str, object]) -> None:
    """Refuse Snakemake's `--config` and `--configfile`, also in a profile, because nothing would read them.

    Args:
        given: Snakemake's settings, with ``config``, the keys and values, and ``configfiles``, the files.
        own: the project's ``config.yaml``, which is allowed because it is read anyway.
        loaded: what Snakemake has loaded, from ``configfile:`` of a Snakefile or ``config:`` of a module.

    Raises:
        ConfigError: anything else was given; the message names it.
    """
    remedy = f"write it into {own} or into {own.parent}/experiments/NAME.yaml: files are checked and compared with the last run"
    if given.config:
        raise ConfigError(f"--config {' '.join(f'{k}={v}' for k, v in given.config.items())}: is not read", remedy)
    other = [file for file in given.configfiles if Path(file).absolute() != own.absolute()]
    if other:
        raise ConfigError(f"--configfile {other[0]}: is not read; only {own} is", remedy)
    if loaded and loaded != read_yaml(own):
        keys = ", ".join(map(str, loaded))
        raise ConfigError(f"config with keys {keys}, of a Snakefile or a module: is not read; only {own} is", remedy)


def load_all(config: Path) -> tuple[RunSettings, dict[str, ExperimentBase]]:
    """Return `config/config.yaml` and every experiment beside it, in sorted order.

    Args:
        config: the folder with ``config.yaml`` and ``experiments/``.

    Raises:
        ConfigError: any file is invalid, or `config.yaml` names an experiment that has no file.
    """
    found = load_configuration(config)
    for error in found.broken.values():
        raise error
    return found.run, found.experiments


def load_configuration(config: Path) -> Configuration:
    """Return `config/config.yaml`, every valid experiment beside it, and the errors of the others.

    Args:
        config: the folder with ``config.yaml`` and ``experiments/``.

    Raises:
        ConfigError: `config.yaml` is invalid, or names an experiment without a file, or the folder does not exist.
    """
    run, folder = load_run(config / "config.yaml"), config / "experiments"
    paths, broken = list_experiment_files(folder)
    experiments, sweeps, refits = dict[str, ExperimentBase](), dict[str, Sweep](), dict[str, tuple[str, ...]]()
    files = set(paths)
    for name in sorted(files):
        try:
            found, sweep = load_file(paths[name])
            if sweep is not None:
                _check_names(paths[name], "sweep", "member", sweep.members, {*paths, *broken})
                sweeps[name] = sweep
            made = {each: make_refits(paths[name], each, about) for each, about in found.items()}
            for each in made.values():
                _check_names(paths[name], "data.left_out", "refit", each, {*paths, *broken, *found})
        except ConfigError as error:
            broken[name] = error
        else:
            refits |= {each: tuple(about) for each, about in made.items() if about}
            for each in (found, *made.values()):
                experiments |= each
                paths |= dict.fromkeys(each, paths[name])
    _check_listed(config, run, {*paths, *broken}, files)
    wrong = find_clashes(paths, dict(sorted(experiments.items())), {*paths, *broken, *sweeps})
    # Repeated, because an experiment that names an invalid one is not valid either.
    while wrong := wrong | _wrong_together(paths, experiments, broken | wrong):
        broken |= wrong
        experiments = {name: each for name, each in experiments.items() if name not in wrong}
        wrong = {}
    for name in [name for name, sweep in sweeps.items() if not sweep.members.keys() <= experiments.keys()]:
        broken[name] = next(broken[member] for member in sweeps.pop(name).members if member in broken)
    for refit in [refit for name in refits.keys() - experiments.keys() for refit in refits.pop(name)]:
        experiments.pop(refit, None)
    return Configuration(run, dict(sorted(experiments.items())), broken, sweeps, refits)


def _check_listed(config: Path, run: RunSettings, names: set[str], files: set[str]) -> None:
    for name in run.experiments:
        if name not in names:
            missing = f"{config / 'experiments' / name}.yaml does not exist"
            problem = f"{config / 'config.yaml'}: experiments: no experiment '{name}' ({missing})"
            raise ConfigError(problem, f"{suggest(name, files)}; or remove the name from the list")


def _check_names(path: Path, key: str, what: str, names: Iterable[str], taken: set[str]) -> None:
    for name in names:
        if name in taken or name in RESERVED_NAMES:
            also = ", or give the settings as `cases`, each with a `name`" if what == "member" else ""
            raise ConfigError(
                f"{path}: key '{key}': the {what} '{name}' would have the name of another experiment",
                f"rename one of the files{also}",
            )


def _wrong_together(
    paths: Mapping[str, Path], experiments: Mapping[str, ExperimentBase], broken: Mapping[str, ConfigError]
) -> dict[str, ConfigError]:
    """Return the errors of experiments that are valid alone but not together with those that they name."""
    wrong: dict[str, ConfigError] = {}
    for name, experiment in experiments.items():
        try:
            check_named(paths[name], name, experiments, broken)
            _check_offers(paths[name], experiment, experiments)
        except ConfigError as error:
            wrong[name] = error
    return wrong
