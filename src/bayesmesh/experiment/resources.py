"""What a job asks of a scheduler: memory and time of sampling, from what the compile stage measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.experiment.experiment import ExperimentBase
from bayesmesh.experiment.site import Site
from bayesmesh.store.sealed import read_sealed

__all__ = ["sample_memory_mb", "sample_minutes"]

BASE_MEMORY_MB = 2000
"""Python, JAX and the two processes of Snakemake that a job starts."""

MEMORY_FACTOR = 1.5
"""Beside the program there are the segment that is written and the rows as they were read."""

BASE_MINUTES = 10
"""Starting JAX, reading the rows, and compiling where the cache does not hold the program."""

TIME_FACTOR = 2.0
"""A measured gradient is the best of three on a machine that did nothing else."""


def sample_memory_mb(audit: Path, attempt: int, site: Site) -> int:
    """Return the memory of one chain group's job, in MB, growing with each attempt, at most what the site allows.

    Args:
        audit: what the compile stage found; Snakemake asks again when it is there.
        attempt: 1 at first.
        site: the limits.

    Raises:
        FileNotFoundError: the compile stage has not run.
        StoreError: what it wrote is damaged.
    """
    found = _read(audit)
    mesh = found["devices"]["mesh"]
    # On a CPU the devices share the host's memory; elsewhere the host holds what goes to the devices.
    total = max(p["memory"]["peak"] for p in found["programs"].values()) * math.prod(mesh.values())
    wanted = (BASE_MEMORY_MB + MEMORY_FACTOR * total / 1e6) * attempt
    return min(math.ceil(wanted), _nodes(found, site).max_memory_mb)


def sample_minutes(audit: Path, attempt: int, site: Site, experiment: ExperimentBase) -> int:
    """Return the time of one chain group's job, in minutes, growing with each attempt, at most what the site allows.

    A job that runs into its limit has committed what it did, and its next attempt goes on from there.

    Raises:
        FileNotFoundError: the compile stage has not run.
        StoreError: what it wrote is damaged.
    """
    found = _read(audit)
    iterations = experiment.sampling.warmup + experiment.sampling.draws
    seconds = iterations * found["gradient"]["per_draw"] * found["gradient"]["seconds"]
    wanted = (BASE_MINUTES + TIME_FACTOR * seconds / 60) * attempt
    return min(math.ceil(wanted), _nodes(found, site).max_minutes)


def _nodes(audit: Mapping[str, Any], site: Site) -> Any:
    return site.cpu if audit["devices"]["platform"] == "cpu" else site.gpu


def _read(audit: Path) -> dict[str, Any]:
    # Raises by the file's name when it is not there: Snakemake asks again when a job has made it.
    audit.stat()
    remedy = "delete it and run the compile stage again"
    content = read_sealed(audit, remedy)
    if missing := {"devices", "gradient", "programs"} - content.keys():
        raise StoreError(f"{audit}: is damaged: no {', '.join(sorted(missing))} in it", remedy)
    return content
