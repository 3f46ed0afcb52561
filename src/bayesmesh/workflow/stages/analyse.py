"""analyse: run an analysis of your own package on an experiment, and on others that its settings name."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from bayesmesh.analyses.base import Analysis, Subject
from bayesmesh.config.declarations import AnalysisDeclaration, read_image_shape
from bayesmesh.errors import UserError
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.components import Component, in_file_of
from bayesmesh.workflow.flow import analysis_of
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.stages.inputs import bind


def run(job: Job, ledger: Ledger, analysis: Analysis, models: Sequence[Component | None]) -> str:
    """Run the analysis of the specification and return a line for the log.

    Args:
        job: specification of the stage.
        ledger: receives times.
        analysis: the analysis with its settings.
        models: the models of the experiment and of the others that the analysis reads; None if it reads no data.

    Raises:
        ConfigError: data or model do not support the analysis.
        UserError: the analysis did not write one of its outputs.
    """
    declaration = analysis_of(job.stage)
    assert declaration is not None, "ensured by `parse_spec`"
    specs = [job, *map(job.of, job.others)]
    subject, *others = (_subject(declaration, *each) for each in zip(specs, models, strict=True))
    files = declaration.files(subject.layout.folder)
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    before = {path: _stamp(path) for path in files.values()}
    with in_file_of(job), ledger.phase(job.word):
        message = analysis.run(subject, {each.name: each for each in others}, files)
    # An output of an earlier run would be recorded as made from the inputs of this one.
    for path in (path for path, stamp in before.items() if _stamp(path) in (None, stamp)):
        raise UserError(
            f"{path}: not written by the analysis '{declaration.name}', which declares it in `outputs`",
            f"in {declaration.path}, let `run` write all of `files`, or remove '{path.name}' from `outputs`",
        )
    return message


def _subject(declaration: AnalysisDeclaration, job: Job, model: Component | None) -> Subject:
    of_data = (functools.partial(bind, job, model), read_image_shape(job.data.source)) if model is not None else ()
    return Subject(job.layout, *of_data, reads_posterior="posterior" in declaration.reads)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return values that change when a file or a folder is written again; None if it does not exist."""
    about = path.stat() if path.exists() else None
    return (about.st_ino, about.st_mtime_ns) if about else None
