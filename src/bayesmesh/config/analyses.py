"""Check the analyses that experiments request: the files of this package's own, and the code, options and names of users' own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from bayesmesh.config.declarations import OWN_KEY, AnalysisDeclaration, declared, key_of
from bayesmesh.config.experiment import ExperimentBase, experiment_class
from bayesmesh.config.registry import list_components
from bayesmesh.config.settings import CODE_PATTERN
from bayesmesh.config.source_code import code_digest
from bayesmesh.errors import ConfigError, suggest


def check_readable(path: Path, content: Mapping[str, object]) -> None:
    """Refuse keys of analyses whose files cannot be read.

    Args:
        path: file of the experiment, for the message.
        content: its keys and values.

    Raises:
        ConfigError: a key is the name of such an analysis; the message names its file and line.
    """
    unknown = sorted(content.keys() - experiment_class().model_fields.keys())
    for name in (name for name in unknown if name in list_components("analysis")):
        try:
            declared(name)
        except ConfigError as error:
            raise ConfigError(f"{path}: key '{name}': {error.message}", error.remedy) from error


def check_own_analyses(path: Path, experiment: ExperimentBase) -> None:
    """Check from source text the analyses of users' packages that an experiment requests; `compile` checks their options.

    Args:
        path: file of the experiment, for messages.
        experiment: its settings.

    Raises:
        ConfigError: a name is not ``module:attribute``; a module or a class does not exist, or a declaration is invalid;
            or two analyses would have the same verb or folder.
    """
    found: list[AnalysisDeclaration] = []
    for name in experiment.analyses:
        where = f"{path}: key '{key_of(name) if ':' in name else OWN_KEY}'"
        try:
            _check_name(name)
            analysis = declared(name)
            code_digest([analysis.path])
            _check_apart(analysis, {"": found})
        except ConfigError as error:
            raise ConfigError(f"{where}: {error.message}", error.remedy) from error
        found.append(analysis)


def find_clashes(
    paths: Mapping[str, Path], experiments: Mapping[str, ExperimentBase], names: Collection[str]
) -> dict[str, ConfigError]:
    """Return experiment -> error where the name of an analysis is taken by something else in the configuration.

    A rule belongs to one analysis, and an experiment's target is a rule too.

    Args:
        paths: experiment -> its file.
        experiments: the valid experiments; of two that clash, the first by name is left alone.
        names: names of all experiments and sweeps, also of invalid ones.
    """
    known: dict[str, list[AnalysisDeclaration]] = {}
    wrong: dict[str, ConfigError] = {}
    for name, experiment in experiments.items():
        for analysis in map(declared, experiment.analyses):
            try:
                if analysis.verb in names:
                    raise ConfigError(
                        f"its verb '{analysis.verb}' is the name of an experiment", _another("verb", analysis)
                    )
                _check_apart(analysis, known)
            except ConfigError as error:
                where = f"{paths[name]}: key '{analysis.key}'"
                wrong[name] = ConfigError(f"{where}: {error.message}", error.remedy)
        if name not in wrong:
            known[name] = [declared(each) for each in experiment.analyses]
    return wrong


def _check_name(name: str) -> None:
    if re.fullmatch(CODE_PATTERN.strip("^$"), name):
        return
    shipped = list_components("analysis")
    if name in shipped:
        raise ConfigError(
            f"'{name}' is an analysis of bayesmesh, not of your package",
            f"write it as a key of its own\n    {name}: {{}}",
        )
    raise ConfigError(
        f"'{name}' is not `module:attribute`",
        f"name a class of your package, for example\n    analyses:\n      my_study.tails:Tails: {{}}\n"
        f"  analyses of bayesmesh are keys of their own: {suggest(name, shipped)}",
    )


def _check_apart(analysis: AnalysisDeclaration, known: Mapping[str, Collection[AnalysisDeclaration]]) -> None:
    """Refuse an analysis whose verb or folder belongs to another one.

    Args:
        analysis: the analysis to check.
        known: experiment -> the analyses that it requests.
    """
    for experiment, others in known.items():
        for other in (each for each in others if each.name != analysis.name):
            for attribute in ("verb", "folder"):
                if (value := getattr(analysis, attribute)) in (other.verb, other.folder):
                    of = f" of experiment '{experiment}'" if experiment else ""
                    taken = f"its {attribute} '{value}' is also that of '{other.name}'{of}"
                    raise ConfigError(taken, _another(attribute, analysis))


def _another(attribute: str, analysis: AnalysisDeclaration) -> str:
    value = getattr(analysis, attribute)
    module = analysis.name.partition(":")[0].rpartition(".")[2]
    return f'write another one in the class, in {analysis.path}, for example `{attribute} = "{module}_{value}"`'
