"""Find results that are missing, altered or out of date when work is planned.

Snakemake makes only what its target lacks, and compares times and params. It would not notice an intermediate result that
was deleted or altered, or one whose params it no longer knows.
"""

from __future__ import annotations

from bayesmesh.errors import StoreError
from bayesmesh.planning.jobs import Job
from bayesmesh.planning.observed import changed
from bayesmesh.store.seals import damage_of, kept_damage, read_seal, stale_inputs


def why_lost(job: Job) -> str:
    """Return why the results of a job must be made again; empty if they are as the job left them, or do not exist yet.

    Args:
        job: the job.
    """
    try:
        seal = read_seal(job.seal)
    except StoreError as error:
        if job.seal.exists():
            return error.message
        there = next((path for path in job.outputs if path.exists()), None)
        return f"{there}: no record of the job that wrote it" if there else ""
    for path in job.outputs:
        if path.is_file() and path.relative_to(job.results).as_posix() not in seal.outputs:
            return f"{path}: is not in the record of the job that wrote it"
    problems = (
        damage_of(job.results, seal), kept_damage(job.results, seal), stale_inputs(job.results, seal),
        (f"{file}: has changed since {job.name} read it" for file in changed(seal.observed)),
    )  # fmt: skip
    return next((line for lines in problems for line in lines), "")


def is_made_with(job: Job, specification: str, code: str) -> bool:
    """Return whether the results of a job were made with these settings and this code, by its seal.

    Args:
        job: the job.
        specification: digest of the settings.
        code: fingerprint of the code.
    """
    try:
        seal = read_seal(job.seal)
    except StoreError:
        return False
    return (seal.specification, seal.code) == (specification, code)
