"""Compute the code of a stage as a short text: its version, and a digest of the files of the components that it names."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.config.registry import BLOCKS, component_files
from bayesmesh.config.source_code import code_digest
from bayesmesh.config.versions import ANALYSE, VERSIONS
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.flow import analysis_of, components
from bayesmesh.workflow.jobs import Job


def stage_code(job: Job) -> str:
    """Return the code that a job of a stage runs, the same at planning and in the job itself.

    Raises:
        ConfigError: a file of a component is not valid Python.
    """
    return f"{VERSIONS.get(job.stage, ANALYSE)}-{component_code(job)}"


def component_code(job: Job) -> str:
    """Return a digest of the files of the components that a stage runs.

    Raises:
        ConfigError: a file of a component is not valid Python.
    """
    return code_digest(named_files(job))


def named_files(job: Job) -> tuple[Path, ...]:
    """Return the file of each component that a stage runs, including those of other experiments."""
    whole = [job.config, *job.others.values()]
    files = [
        f for kind in components(job.stage) for config in whole for f in component_files(kind, config[BLOCKS[kind][0]])
    ]
    if (analysis := analysis_of(job.stage)) is not None:
        files.append(analysis.path)
    elif job.stage == "report":
        files += [each.path for each in job.analyses]
    return tuple(files)


def check_code(job: Job, planned: str) -> str:
    """Return the code of a job after comparing it with what its run was planned with.

    Args:
        job: specification of the job.
        planned: its code when the run was planned; empty if nothing was.

    Raises:
        ConfigError: a file was edited since, or another version of the package is installed.
    """
    present = stage_code(job)
    if planned and planned != present:
        files = ", ".join(map(str, named_files(job))) or "the package"
        raise ConfigError(
            f"the code of {job.word} was edited after this run was planned: {files}, or a file beside it",
            "run the same command again, which plans with the present code",
        )
    return present
