"""analyse: run an analysis of your own package on an experiment, and on others that its settings name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.analyses.base import Analysis, BoundModel, Subject
from bayesmesh.config.declarations import OWN_KEY, AnalysisDeclaration, has_refits, read_image_shape
from bayesmesh.config.refit_settings import Refits
from bayesmesh.config.registry import load_component
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, UserError
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.records.receipts import write_receipts
from bayesmesh.workflow.flow import analysis_of
from bayesmesh.workflow.job_files import read_by_analysis
from bayesmesh.workflow.specs import StageSpec
from bayesmesh.workflow.stages.inputs import in_file_of, model_of, shards_of


def run(spec: StageSpec, ledger: Ledger, cores: int | None = None) -> str:
    """Run the analysis of the specification and return a line for the log.

    Raises:
        ConfigError: the experiment does not ask for the analysis, or data or model do not support it.
        UserError: the analysis did not write one of its outputs.
    """
    declaration = _declaration(spec)
    analysis = _make(declaration, spec)
    configure_jax(spec.compute, cores)
    specs = [spec, *map(spec.of, spec.others)]
    subject, *others = (_subject(declaration, each) for each in specs)
    files = declaration.files(subject.layout.folder)
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    before = {path: _stamp(path) for path in files.values()}
    with in_file_of(spec), ledger.phase(spec.word):
        said = analysis.run(subject, {each.name: each for each in others}, files)
    # An output of an earlier run would get a receipt for the inputs of this one.
    for path in (path for path, stamp in before.items() if _stamp(path) in (None, stamp)):
        raise UserError(
            f"{path}: not written by the analysis '{declaration.name}', which declares it in `outputs`",
            f"in {declaration.path}, let `run` write all of `files`, or remove '{path.name}' from `outputs`",
        )
    inputs = [path for each in specs for path in _read_by(declaration, each)]
    write_receipts(subject.layout.results, f"{spec.word} {spec.experiment}", files.values(), inputs)
    return said


def check(spec: StageSpec, model: Any, data_spec: DataSpec, shards: Shards, latents: Mapping[str, Any]) -> None:
    """Check before sampling that data and model support the analysis of the specification.

    Args:
        spec: of the analysis.
        model: bound to the data.
        data_spec: of the shards, in the experiment's dtype.
        shards: the data.
        latents: name -> shape and dtype of one draw.

    Raises:
        ConfigError: they do not support it; the message names the experiment's file and the key.
    """
    analysis = _make(_declaration(spec), spec)
    with in_file_of(spec):
        analysis.check(BoundModel(model, data_spec, shards), latents)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return values that change when a file or a folder is written again; None if it does not exist."""
    about = path.stat() if path.exists() else None
    return (about.st_ino, about.st_mtime_ns) if about else None


def _declaration(spec: StageSpec) -> AnalysisDeclaration:
    found = analysis_of(spec.stage)
    assert found is not None  # ensured by `parse_spec`
    return found


def _make(declaration: AnalysisDeclaration, spec: StageSpec) -> Analysis:
    """Return an analysis with the settings of an experiment."""
    options = spec.analysis_settings(declaration)
    if options is None:
        with in_file_of(spec):
            example = f"{declaration.name}: {{}}"
            example = f"{OWN_KEY}:\n      {example}" if declaration.is_own else example
            raise ConfigError(f"key '{declaration.key}' is missing", f"add\n    {example}")
    if isinstance(options, Refits) and options.left_out() and not has_refits(declaration.name):
        raise ConfigError(
            f"{declaration.path}: its class Options does not say that there are refits",
            "write it as `class Options(Refits)` or `class Options(Folds)`",
        )
    analysis: Analysis = load_component("analysis", declaration.name)(options)
    return analysis


def _subject(declaration: AnalysisDeclaration, spec: StageSpec) -> Subject:
    def bind() -> BoundModel:
        shards, data_spec = shards_of(spec)
        return BoundModel(model_of(spec, data_spec), data_spec, shards)

    of_data = (bind, read_image_shape(spec.data.source)) if "data" in declaration.reads else ()
    return Subject(spec.layout, *of_data, reads_posterior="posterior" in declaration.reads)


def _read_by(declaration: AnalysisDeclaration, spec: StageSpec) -> list[Path]:
    """Return the files that identify the inputs read from an experiment; the list of hashes stands for a posterior."""
    layout = spec.layout
    return [
        layout.posterior_hashes if file == layout.posterior else file for file in read_by_analysis(spec, declaration)
    ]
