"""Find and load the files of the configuration, each checked alone and against the others, before any job starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bayesmesh.config.checks import (
    check_experiment,
    check_name,
    check_named,
    check_offers,
    check_readable,
    find_clashes,
)
from bayesmesh.config.declarations import has_refits, key_of
from bayesmesh.config.errors import explain, validate
from bayesmesh.config.experiment import RESERVED_NAMES, ExperimentBase, RunSettings
from bayesmesh.config.refit_settings import LeftOut, Refits
from bayesmesh.config.registry import list_components, options_class
from bayesmesh.config.relatives import check_relative, continue_first, continue_refit
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.config.sweep import Sweep, load_members
from bayesmesh.config.yaml_reader import EXAMPLE, read_yaml
from bayesmesh.errors import ConfigError, locating, suggest


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
    return validate(path, RunSettings, read_yaml(path))


def load_experiment(path: Path) -> ExperimentBase:
    """Return the experiment of a file without a sweep; its name is that of the file.

    Raises:
        ConfigError: see `load_file`; or the file has a sweep.
    """
    experiments, sweep = load_file(path)
    if sweep is not None:
        raise ConfigError(f"{path}: a sweep of {len(experiments)} experiments", f"name one of {', '.join(experiments)}")
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
    members, sweep = load_members(path, content, check_experiment)
    continue_first(members)
    return members, sweep


def experiment_file(config: Path, name: str) -> Path:
    """Return the file of an experiment; a member of a sweep shares the sweep's file, whose name is a prefix of its own.

    Args:
        config: the folder with ``experiments/``.
        name: name of the experiment.
    """
    words = name.split("-")
    files = (config / "experiments" / f"{'-'.join(words[:n])}.yaml" for n in range(len(words), 0, -1))
    return next((file for file in files if file.is_file()), config / "experiments" / f"{name}.yaml")


def list_experiment_files(folder: Path) -> tuple[dict[str, Path], dict[str, ConfigError]]:
    """Return name -> file of all experiments, and name -> error of files with a similar ending."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder", f"create it, and write one file per experiment\n{EXAMPLE}")
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    paths = {path.stem: path for path in files if path.suffix == ".yaml"}
    misnamed: dict[str, ConfigError] = {}
    for path in files:
        if path.suffix != ".yaml" and re.search(r"\.(ya?ml|json|toml)(\.txt)?$", path.name, re.IGNORECASE):
            name = path.name.partition(".")[0]
            misnamed[path.name if name in paths or name in misnamed else name] = ConfigError(
                f"{path}: an experiment is a file NAME.yaml; this one would be ignored",
                f"rename it to {name}.yaml, or move it out of {folder}",
            )
    return paths, misnamed


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
            made = {each: _make_refits(paths[name], each, about) for each, about in found.items()}
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
    while wrong := wrong | _wrong_together(paths, experiments, broken | wrong, sweeps):
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
    paths: Mapping[str, Path],
    experiments: Mapping[str, ExperimentBase],
    broken: Mapping[str, ConfigError],
    sweeps: Mapping[str, Sweep],
) -> dict[str, ConfigError]:
    """Return the errors of experiments that are valid alone but not together with those that they name."""
    wrong: dict[str, ConfigError] = {}
    for name, experiment in experiments.items():
        try:
            check_named(paths[name], name, experiments, broken)
            check_relative(paths[name], name, experiments, broken, sweeps)
            check_offers(paths[name], experiment, experiments)
        except ConfigError as error:
            wrong[name] = error
    return wrong


def _make_refits(path: Path, name: str, experiment: ExperimentBase) -> dict[str, ExperimentBase]:
    """Return name -> refit, for the refits that an experiment's analyses request, and tell the experiment their names.

    Each has the settings of the experiment without its analyses.

    Args:
        path: file of the experiment.
        name: its name.
        experiment: its settings.

    Raises:
        ConfigError: a name is too long or shared by two refits, or the experiment is itself a refit.
    """
    made: dict[str, ExperimentBase] = {}
    named: dict[str, tuple[str, ...]] = {}
    for analysis in filter(has_refits, experiment.requested_analyses()):
        where, left_out = f"{path}: key '{key_of(analysis)}'", _left_out(path, analysis, experiment)
        if not left_out:
            continue
        if experiment.data.replicates is not None:
            raise ConfigError(
                f"{where}: samples again without some rows, which works for one dataset but not with `data.replicates`",
                "remove one of the two",
            )
        if experiment.data.left_out is not None:
            raise ConfigError(
                f"{path}: key 'data.left_out': not together with {key_of(analysis)}", "remove one of the two"
            )
        named[analysis] = tuple(f"{name}-{ending}" for ending in left_out)
        for refit, rows in zip(named[analysis], left_out.values(), strict=True):
            if not re.fullmatch(NAME_PATTERN, refit):
                raise ConfigError(
                    f"{where}: '{refit}' would be the name of a refit; names match {NAME_PATTERN}",
                    "give the file a shorter name, or the members of its sweep, as `cases` with a `name`",
                )
            if refit in made:
                raise ConfigError(
                    f"{where}: another analysis has refits of the same name, '{refit}'",
                    "give one of them another number of folds, or other rows",
                )
            made[refit] = continue_refit(
                name,
                experiment.without_analyses(
                    {
                        "title": f"{experiment.title[:150]}, {rows.words}",
                        "data": experiment.data.model_copy(
                            update={"left_out": rows.model_copy(update={"asked_by": key_of(analysis)})}
                        ),
                    }
                ),
            )
    experiment.name_refits(named)
    return made


def _left_out(path: Path, analysis: str, experiment: ExperimentBase) -> Mapping[str, LeftOut]:
    """Return what the refits of an analysis leave out; the analysis of a user's own package is imported to know them."""
    try:
        with locating(f"{path}: key '{key_of(analysis)}'"):
            settings = experiment.analysis_settings(analysis)
    except ValidationError as error:
        raise explain(path, error, options_class("analysis", analysis), under=key_of(analysis)) from error
    return settings.left_out() if isinstance(settings, Refits) else {}


# -- what a start of the workflow refuses ----------------------------------------------------------------------------------


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
