"""Check an experiment beyond its single keys: its components, its analyses, and the experiments that it names.

User's code is read, never imported: the jobs that use it import it, sources in `fetch` and all others in `compile`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from bayesmesh.config.blocks import check_chains, check_start
from bayesmesh.config.declarations import (
    OWN_KEY,
    AnalysisDeclaration,
    declared,
    key_of,
    read_conditions,
    read_offers,
    read_trait,
)
from bayesmesh.config.errors import validate
from bayesmesh.config.experiment import (
    RESERVED_NAMES,
    ExperimentBase,
    ExternalKernel,
    ExternalModel,
    ExternalSource,
    NamedBlock,
    SourceBlock,
    experiment_class,
)
from bayesmesh.config.registry import BLOCKS, component_path, list_components
from bayesmesh.config.settings import CODE_PATTERN, NAME_PATTERN, code_names
from bayesmesh.config.source_code import code_digest
from bayesmesh.errors import ConfigError, locating, suggest


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
    experiment = validate(path, experiment_class(), value)
    for kind, (key, _) in BLOCKS.items():
        _check_code(path, kind, key, getattr(experiment, key))
    _check_own_analyses(path, experiment)
    experiment = _resolve_start(experiment)
    _check_kernel(path, experiment)
    check_offers(path, experiment, {})
    return experiment


def _check_code(path: Path, kind: str, key: str, block: NamedBlock | SourceBlock) -> None:
    """Check that the modules of the user's own code exist: of a component `module:attribute`, or of functions that options name."""
    named = [("function", option, name) for option, name in code_names(type(block), block.model_dump())]
    if isinstance(block, ExternalSource):
        named = [(kind, "source", block.source)]
    if isinstance(block, ExternalModel | ExternalKernel):
        named = [(kind, "name", block.name)]
    for of, option, name in named:
        with locating(f"{path}: key '{key}.{option}'"):
            file = component_path(of, name)
            if of != "function":
                code_digest([file])


def _check_kernel(path: Path, experiment: ExperimentBase) -> None:
    """Check that an experiment suits its kernel; what the kernel computes is checked when compiling.

    Args:
        path: file of the experiment, for messages.
        experiment: the experiment.

    Raises:
        ConfigError: the kernel needs other chains, or another start.
    """
    kernel, sampling = experiment.kernel.name, experiment.sampling
    least, multiple = (read_trait("kernel", kernel, trait, 1) for trait in ("min_chains", "chain_multiple"))
    check_chains(str(path), kernel, sampling.chains_per_group, least, multiple, sampling.chain_groups)
    if read_trait("kernel", kernel, "starts_from_prior", False):
        check_start(str(path), kernel, sampling.initial)


def _resolve_start(experiment: ExperimentBase) -> ExperimentBase:
    """Return an experiment whose start, if it was `auto`, is the one that its kernel needs."""
    initial = experiment.sampling.initial
    if initial.method != "auto" or not read_trait("kernel", experiment.kernel.name, "starts_from_prior", False):
        return experiment
    resolved = initial.model_copy(update={"method": "prior"})
    return experiment.model_copy(update={"sampling": experiment.sampling.model_copy(update={"initial": resolved})})


def check_offers(path: Path, experiment: ExperimentBase, others: Mapping[str, ExperimentBase]) -> None:
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


def check_valid(
    where: str, name: str, other: str, experiments: Collection[str], broken: Mapping[str, ConfigError]
) -> None:
    """Check that another experiment, which a key names, exists and is valid.

    Args:
        where: file and key.
        name: name of the experiment that has the key, which is not suggested.
        other: name of the other one.
        experiments: names of those that are valid.
        broken: name -> error of those that are not.

    Raises:
        ConfigError: it does not exist or is not valid.
    """
    if other in broken:
        raise ConfigError(f"{where}: '{other}' is not valid: {broken[other].message}", broken[other].remedy)
    if other not in experiments:
        raise ConfigError(f"{where}: no experiment '{other}'", suggest(other, set(experiments) - {name}))


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
            check_valid(where, name, other, experiments, broken)
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


# -- the names of analyses ------------------------------------------------------------------------------------------------


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
        with locating(f"{path}: key '{name}'"):
            declared(name)


def _check_own_analyses(path: Path, experiment: ExperimentBase) -> None:
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
        with locating(where):
            _check_own_name(name)
            analysis = declared(name)
            code_digest([analysis.path])
            _check_apart(analysis, {"": found})
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
                with locating(f"{paths[name]}: key '{analysis.key}'"):
                    if analysis.verb in names:
                        problem = f"its verb '{analysis.verb}' is the name of an experiment"
                        raise ConfigError(problem, _another("verb", analysis))
                    _check_apart(analysis, known)
            except ConfigError as error:
                wrong[name] = error
        if name not in wrong:
            known[name] = [declared(each) for each in experiment.analyses]
    return wrong


def _check_own_name(name: str) -> None:
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
