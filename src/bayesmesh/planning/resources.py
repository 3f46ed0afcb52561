"""What a job asks of a scheduler: memory and time of sampling, from what the compile stage measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.errors import StoreError
from bayesmesh.planning.site import Nodes
from bayesmesh.store.sealed import read_sealed

__all__ = ["SampleJob", "sample_memory_mb", "sample_minutes"]

BASE_MEMORY_MB = 2000
"""Python, JAX and the two processes of Snakemake that a job starts."""

MEMORY_FACTOR = 1.5
"""Beside the program there are the segment that is written and the rows as they were read."""

BASE_MINUTES = 10
"""Starting JAX, reading the rows, and compiling where the cache does not hold the program."""

TIME_FACTOR = 2.0
"""A measured gradient is the best of three on a machine that did nothing else."""


class SampleJob(NamedTuple):
    """What one chain group's job is on the cluster; the profile says it, and not what the compile stage happened to find.

    Attributes:
        limits: what it may ask for.
        stop_minutes: how long before its time is up it is told to stop, rounded up.
        num_nodes: over which its devices are spread.
    """

    limits: Nodes
    stop_minutes: int
    num_nodes: int = 1


def sample_memory_mb(audit: Path, attempt: int, job: SampleJob) -> int:
    """Return the memory of a node for one chain group's job, in MB, growing with each attempt up to the site's limit.

    Args:
        audit: what the compile stage found; Snakemake asks again when it is there.
        attempt: 1 at first.
        job: what it is on the cluster.

    Raises:
        FileNotFoundError: the compile stage has not run.
        StoreError: what it wrote is damaged.
    """
    found = _read(audit)
    mesh = found["devices"]["mesh"]
    # On a CPU the devices share the host's memory; elsewhere the host holds what goes to the devices.
    peak = max(p["memory"]["peak"] for p in found["programs"].values())
    of_node = peak * math.ceil(math.prod(mesh.values()) / job.num_nodes)
    wanted = (BASE_MEMORY_MB + MEMORY_FACTOR * of_node / 1e6) * attempt
    return min(math.ceil(wanted), job.limits.max_memory_mb)


def sample_minutes(audit: Path, attempt: int, job: SampleJob, experiment: ExperimentBase) -> int:
    """Return the time of one chain group's job, in minutes, growing with each attempt, at most what the site allows.

    A job that runs into its limit has committed what it did, and its next attempt goes on from there.

    Raises:
        FileNotFoundError: the compile stage has not run.
        StoreError: what it wrote is damaged.
    """
    found = _read(audit)
    iterations = experiment.sampling.warmup + experiment.sampling.draws
    seconds = iterations * found["gradient"]["per_draw"] * found["gradient"]["seconds"]
    wanted = (BASE_MINUTES + TIME_FACTOR * seconds / 60) * attempt + job.stop_minutes
    return min(math.ceil(wanted), job.limits.max_minutes)


def _read(audit: Path) -> dict[str, Any]:
    # Raises by the file's name when it is not there: Snakemake asks again when a job has made it.
    audit.stat()
    remedy = "delete it and run the compile stage again"
    content = read_sealed(audit, remedy)
    if missing := {"devices", "gradient", "programs"} - content.keys():
        raise StoreError(f"{audit}: is damaged: no {', '.join(sorted(missing))} in it", remedy)
    return content
