"""Compute memory and time of a sampling job from the measurements of the compile stage."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.errors import StoreError
from bayesmesh.store.records.checked import read_checked
from bayesmesh.workflow.site import Nodes

BASE_MEMORY_MB = 2000
"""Memory of Python, JAX and the two processes of Snakemake in a job."""

MEMORY_FACTOR = 1.5
"""Factor for memory besides the program: the segment being written and the rows as read."""

BASE_MINUTES = 10
"""Time to start JAX, read the rows, and compile if the program is not cached."""

TIME_FACTOR = 2.0
"""Safety factor, because the measured gradient is the best of three on an idle machine."""


class SampleJob(NamedTuple):
    """One chain group's job on the cluster, as set by the profile, independent of the machine of the compile stage.

    Attributes:
        limits: limits of its resources.
        stop_minutes: time between its stop signal and its time limit, rounded up.
        num_nodes: number of nodes of its devices.
    """

    limits: Nodes
    stop_minutes: int
    num_nodes: int = 1


def sample_memory_mb(audit: Path, attempt: int, job: SampleJob) -> int:
    """Return the memory of a node for one chain group's job, in MB, growing with each attempt up to the site's limit.

    Args:
        audit: measurements of the compile stage; Snakemake evaluates again when the file exists.
        attempt: number of the attempt, from 1.
        job: the job on the cluster.

    Raises:
        FileNotFoundError: the compile stage has not run.
        StoreError: the audit is damaged.
    """
    found = _read(audit)
    mesh = found["devices"]["mesh"]
    # On a CPU the devices share the host's memory; elsewhere the host only needs the data for the devices.
    peak = max(p["memory"]["peak"] for p in found["programs"].values())
    of_node = peak * math.ceil(math.prod(mesh.values()) / job.num_nodes)
    wanted = (BASE_MEMORY_MB + MEMORY_FACTOR * of_node / 1e6) * attempt
    return min(math.ceil(wanted), job.limits.max_memory_mb)


def sample_minutes(audit: Path, attempt: int, job: SampleJob, experiment: ExperimentBase) -> int:
    """Return the time of one chain group's job, in minutes, growing with each attempt up to the site's limit.

    A job that reaches its limit has committed its draws, and the next attempt continues from there.

    Raises:
        FileNotFoundError: the compile stage has not run.
        StoreError: the audit is damaged.
    """
    found = _read(audit)
    iterations = experiment.sampling.warmup + experiment.sampling.draws
    seconds = iterations * found["gradient"]["per_draw"] * found["gradient"]["seconds"]
    wanted = (BASE_MINUTES + TIME_FACTOR * seconds / 60) * attempt + job.stop_minutes
    return min(math.ceil(wanted), job.limits.max_minutes)


def _read(audit: Path) -> dict[str, Any]:
    # A FileNotFoundError makes Snakemake evaluate again after a job has made the file.
    audit.stat()
    remedy = "delete it and run the compile stage again"
    content = read_checked(audit, remedy)
    if missing := {"devices", "gradient", "programs"} - content.keys():
        raise StoreError(f"{audit}: is damaged: {', '.join(sorted(missing))} missing", remedy)
    return content
