"""Construct the components that a specification names, once, when its job starts."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bayesmesh.config.declarations import OWN_KEY, AnalysisDeclaration, declared, has_refits, list_analyses
from bayesmesh.config.errors import explain, validate
from bayesmesh.config.experiment import component_options, requested
from bayesmesh.config.loading import experiment_file
from bayesmesh.config.refit_settings import Refits
from bayesmesh.config.registry import BLOCKS, load_component, options_class, resolve_component
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.flow import analysis_of
from bayesmesh.workflow.jobs import Job

if TYPE_CHECKING:
    from bayesmesh.analyses.base import Analysis
    from bayesmesh.sampling.program.sizes import ProgramSettings

Component = tuple[type[Any], Any]
"""Class of a source, model or kernel, and its options."""


def component_of(job: Job, kind: str) -> Component:
    """Return the class of the source, model or kernel of a specification, and its options.

    Raises:
        ConfigError: it does not exist, or its options are invalid; the message names the file and the key.
    """
    key, word = BLOCKS[kind]
    block = dict(job.settings(key))
    name, given = block[word], component_options(kind, block)
    try:
        with in_file_of(job, key_of_model(job)) if kind == "model" else contextlib.nullcontext():
            return resolve_component(kind, name, given)
    except ValidationError as error:
        raise explain(job.file, error, options_class(kind, name), under=f"{key}.options") from error


def program_settings(job: Job) -> ProgramSettings:
    """Return what the program of a chain group is made from, for `compile` and `sample`: its components and settings."""
    # JAX is only for the stages that compute.
    from bayesmesh.sampling.program.sizes import ProgramSettings

    return ProgramSettings(
        experiment=job.experiment,
        model_name=job.model.name,
        kernel_name=job.kernel.name,
        model=component_of(job, "model"),
        kernel=component_of(job, "kernel"),
        sampling=job.sampling,
        compute=job.compute,
        num_chains=job.num_chains,
    )


def make_analysis(job: Job) -> Analysis:
    """Return the analysis of a specification, with its settings.

    Raises:
        ConfigError: the experiment does not request it, or its settings are invalid; the message names the file and the key.
    """
    declaration = analysis_of(job.stage)
    assert declaration is not None, "ensured by `parse_spec`"
    given = requested(job.config).get(declaration.name)
    if given is None:
        example = f"{declaration.name}: {{}}"
        example = f"{OWN_KEY}:\n      {example}" if declaration.is_own else example
        raise ConfigError(f"{job.file}: key '{declaration.key}' is missing", f"add\n    {example}")
    return _make(declaration, given, job.file)


def _make(declaration: AnalysisDeclaration, given: object, file: Path) -> Analysis:
    cls = options_class("analysis", declaration.name)
    options = validate(file, cls, given, under=declaration.key)
    if isinstance(options, Refits) and options.left_out() and not has_refits(declaration.name):
        raise ConfigError(
            f"{declaration.path}: its class Options does not say that there are refits",
            "write it as `class Options(Refits)` or `class Options(Folds)`",
        )
    analysis: Analysis = load_component("analysis", declaration.name)(options)
    return analysis


def requested_analyses(
    asked: Mapping[str, object], file: Path
) -> list[tuple[AnalysisDeclaration, Callable[[], Analysis]]]:
    """Return the analyses that an experiment requests, each with a function that constructs it, for its page.

    Args:
        asked: name of each requested analysis -> its settings.
        file: file of the experiment, for messages.
    """
    each = [(declared(name), given) for name, given in asked.items()]
    return [(declaration, functools.partial(_make, declaration, given, file)) for declaration, given in each]


def make_checks() -> dict[str, Analysis]:
    """Return name -> analysis with default settings, for the checks of a model's fit that the package has."""
    found: dict[str, Analysis] = {}
    for name in (each.name for each in list_analyses() if each.checks_model):
        # A mistake in one affects only the experiments that request it.
        with contextlib.suppress(ConfigError):
            found[name] = load_component("analysis", name)(options_class("analysis", name)())
    return found


def key_of_model(job: Job) -> str:
    """Return the key that names the user's code; for a model that takes a function, the key of that function."""
    return "model.function" if "function" in dict(job.model) else "model.name"


@contextlib.contextmanager
def in_file_of(job: Job, key: str = "") -> Iterator[None]:
    """Prefix configuration errors with the experiment's file, and with a key if one is given and the error names none."""
    try:
        yield
    except ConfigError as error:
        file, names_key = experiment_file(Path("config"), job.experiment), error.message.startswith("key '")
        if error.message.startswith(f"{file}: "):
            raise
        where = f"{file}: " + (f"key '{key}': " if key and not names_key else "")
        raise ConfigError(f"{where}{error.message}", error.remedy) from error
