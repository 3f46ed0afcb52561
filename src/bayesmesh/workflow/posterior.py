"""Find a stored posterior, and the settings with which it was made."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from bayesmesh.config.loading import experiment_file
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError, DataError, StoreError, suggest
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.files import find_files
from bayesmesh.store.records.jobs import check_made_from, check_output, find_record
from bayesmesh.workflow.arguments import refuse_overwriting
from bayesmesh.workflow.jobs import Job, parse_spec

_log = logging.getLogger("bayesmesh")


def find_spec(layout: ExperimentLayout) -> Job:
    """Return the settings with which the posterior was made, whatever the experiment's file says now.

    Raises:
        ConfigError: there is no posterior.
        StoreError: it has been altered, or its settings are gone.
    """
    if not layout.posterior.is_dir():
        stored = [path.parent.name for path in layout.results.glob("*/posterior.zarr")]
        name, problem = layout.experiment, f"no posterior of an experiment '{layout.experiment}' in {layout.folder}"
        is_configured = experiment_file(Path("config"), name).is_file()
        members = [each for each in stored if each.startswith(f"{name}-")]
        remedy = f"run it first: snakemake {name}" if is_configured or not stored else suggest(name, stored)
        remedy += f"; of a sweep, name a member: {', '.join(sorted(members))}" if is_configured and members else ""
        raise ConfigError(problem, remedy)
    made_from = find_record(layout.results, layout.posterior).specification
    for path in sorted(layout.spec("any").parent.glob("assemble-*.json")):
        job = parse_spec(str(path), "assemble")
        if job.digest == made_from:
            # The results may have been moved, or be opened from another folder.
            return job.model_copy(update={"results": layout.results})
    problem = f"{layout.spec('any').parent}: the settings with which the posterior was made are gone"
    raise StoreError(problem, "run the assemble stage again")


def find_finished(layout: ExperimentLayout) -> Job:
    """Return the settings of a posterior that is as its job wrote it and has a verdict of its own.

    Raises:
        ConfigError: there is no posterior, or no verdict on it yet.
        StoreError: one of them has been altered, or the verdict is about an earlier posterior.
    """
    job = find_spec(layout)
    check_output(layout.results, layout.posterior)
    if not layout.verdict.exists():
        problem = f"experiment '{layout.experiment}' is unfinished: there is no verdict on its posterior yet"
        raise ConfigError(problem, f"run it to the end: bayesmesh run {layout.experiment}")
    check_output(layout.results, layout.verdict)
    check_made_from(layout.results, layout.verdict)
    return job


def warn_of_failure(layout: ExperimentLayout, consequence: str) -> None:
    """Log a warning if the verdict on a posterior is ``fail``.

    Args:
        layout: files of the experiment.
        consequence: what this means for what is made of the posterior.
    """
    if layout.verdict.exists() and read_verdict(layout.verdict).verdict == "fail":
        message = "warning: the verdict on the chains of '%s' is fail: %s. %s says why"
        _log.warning(message, layout.experiment, consequence, layout.folder / "report.html")


def refuse_overwriting_data(job: Job, output: Path, option: str = "--output") -> None:
    """Refuse to write the file of an option over one of the experiment's data, of the results or of the configuration.

    Raises:
        ConfigError: it is one of them.
    """
    for folder in (job.layout.results, Path("config")):
        if output.exists() and output.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{option} {output}: exists in {folder}", "name another file, outside of this folder")
    for key, patterns in job.input_files().patterns.items():
        for pattern in patterns:
            # A file that is gone cannot be overwritten.
            with contextlib.suppress(DataError):
                for path in find_files((pattern,), key):
                    refuse_overwriting(path, output, option)
