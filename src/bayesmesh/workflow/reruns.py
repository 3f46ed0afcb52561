"""Compare jobs with their records: which results are missing, altered or out of date, and which jobs must run again.

Snakemake makes only what its target lacks, and compares times and params. It would not notice an intermediate result that
was deleted or altered, or one whose params it no longer knows. The record of such a job is set aside: every target needs the
records of all its jobs, so Snakemake plans the job again. When Snakemake ends, a record that no job has replaced is put back.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bayesmesh.config.versions import ANALYSE, VERSIONS
from bayesmesh.errors import DataError, StoreError
from bayesmesh.store.lock import describe_writer
from bayesmesh.store.records.files import is_of_mirror
from bayesmesh.store.records.jobs import Record, changed_files, damage_of, read_record, stale_inputs
from bayesmesh.workflow.jobs import Job

_log = logging.getLogger("bayesmesh")

_PLANS_ONLY = re.compile(
    r"-[A-Za-z]*n[A-Za-z]*|--(dry|touch|unlock|lint|list|dag|d3dag|rulegraph|filegraph|summary|detailed|report|archive|cleanup|delete).*"
)
"""Arguments with which Snakemake runs no job; while it reads the rules, it does not say so itself."""


def runs_jobs(words: Iterable[str]) -> bool:
    """Return whether Snakemake runs jobs with these arguments.

    >>> runs_jobs(["-j2", "digits"]), runs_jobs(["-np", "digits"]), runs_jobs(["--dry-run"])
    (True, False, False)
    """
    return not any(map(_PLANS_ONLY.fullmatch, words))


class Current(NamedTuple):
    """A job with the code that it would run now; empty for pages of several experiments."""

    job: Job
    code: str = ""


def set_aside_lost(jobs: Iterable[Current], workflow: Any) -> None:
    """Set aside the records of jobs that must run again for a reason that Snakemake does not see, and say why.

    Args:
        jobs: the jobs on which the targets depend.
        workflow: Snakemake's. Its own jobs read the rules too, and change nothing; a dry run only says why.
    """
    if not workflow.is_main_process:
        return
    is_run, jobs = runs_jobs(sys.argv[1:]), list(jobs)
    if is_run:
        # Also those that a killed run has left.
        atexit.register(_put_back, jobs)
    # Found for all jobs first: Snakemake runs those that read the results of a job again by itself.
    for job, why in [(each.job, _why_again(*each)) for each in jobs]:
        if why:
            _log.warning("%s runs again: %s", f"{job.owner} {job.name}".lstrip(), why)
            if is_run and os.path.lexists(job.record):
                job.record.replace(job.aside)


def _why_again(job: Job, code: str) -> str:
    """Return why a job must run again, for a reason that Snakemake may not see; empty if there is none."""
    if (why := why_lost(job)) or not code or not job.record.exists():
        return why
    return "" if is_made_with(job, code) else "its results were made with other settings or other code"


def _put_back(jobs: Iterable[Current]) -> None:
    """Put back the records that were set aside, unless their jobs have written others since."""
    for job in (each.job for each in jobs if each.job.aside.exists()):
        if job.record.exists():
            job.aside.unlink()
        else:
            job.aside.replace(job.record)


def why_lost(job: Job) -> str:
    """Return why the results of a job must be made again; empty if they are as the job left them, or do not exist yet."""
    if (line := find_damage(job)) or not job.record.exists():
        return line
    record = read_record(job.record)
    return next(itertools.chain(damage_of(job.results, record.kept), _causes(job, record)), "")


def find_damage(job: Job) -> str:
    """Return the first output of a job that is missing, altered or without a record; empty if there is none."""
    try:
        record = read_record(job.record)
    except StoreError as error:
        if os.path.lexists(job.record):
            return error.message
        there = next((path for path in job.outputs if os.path.lexists(path)), None)
        return f"{there}: no record of the job that wrote it" if there else ""
    for path in job.outputs:
        if path.is_file() and path.relative_to(job.results).as_posix() not in record.outputs:
            return f"{path}: is not in the record of the job that wrote it"
    return next(damage_of(job.results, record.outputs), "")


def is_up_to_date(job: Job) -> bool:
    """Return whether everything that a job read is unchanged."""
    return not any(_causes(job, read_record(job.record)))


def refuse_changed_files(job: Job) -> None:
    """Refuse results of a job whose declared files have changed since; a job that has not run yet is not refused.

    Raises:
        DataError: a file is missing.
        StoreError: a file that the job read is new or different.
    """
    if not job.record.exists():
        return
    job.files.find()
    if line := next(_changed_files(job, read_record(job.record)), ""):
        raise StoreError(
            f"{job.name}: {line}", f"run {job.name} again, or `bayesmesh run`: it runs what is out of date"
        )


def _causes(job: Job, record: Record) -> Iterator[str]:
    yield from stale_inputs(job.results, record)
    yield from _changed_files(job, record)


def _changed_files(job: Job, record: Record) -> Iterator[str]:
    """Yield one line per file that the source declares and that is new, missing or different."""
    try:
        present = job.files.find()
    except DataError as error:
        yield error.message
        return
    # With or without a mirror, the files are those that their publisher registered.
    for name in sorted(name for name in present if name not in record.files and not is_of_mirror(name)):
        yield f"{name}: was not there when {job.name} read the others"
    for name in sorted(name for name in record.files if name not in present and not is_of_mirror(name)):
        yield f"{name}: is no longer among the files that {job.name} reads"
    yield from changed_files(job.results, record)


def is_made_with(job: Job, code: str) -> bool:
    """Return whether the results of a job were made with its settings and this code, see `stage_code`, by its record."""
    try:
        record = read_record(job.record)
    except StoreError:
        return False
    return (record.specification, record.code) == (job.digest, code)


class Condition(NamedTuple):
    """The condition of an experiment's results.

    Attributes:
        damage: first file that is missing, altered or without a record, and what is wrong with it; empty if there is none.
        older: first job whose results are older than the configuration or than what they were made from; empty if there is none.
    """

    damage: str = ""
    older: str = ""


def condition_of(jobs: Iterable[Current]) -> Condition:
    """Return the condition of an experiment's results, without those of jobs that are running or have never run.

    Args:
        jobs: the jobs of the experiment, in the order of the flow.

    Raises:
        OSError: a lock cannot be read.
    """
    older = ""
    for job, code in jobs:
        if describe_writer(job.lock) or (job.is_sampling and not job.record.exists()):
            continue
        if job.aside.exists():
            older = older or job.name
            continue
        if line := find_damage(job):
            return Condition(line)
        if job.record.exists() and not older:
            # A caption or a title changes the page alone.
            is_as_configured = job.stage == "report" or is_made_with(job, code)
            older = "" if is_as_configured and is_up_to_date(job) else job.name
            if older and read_record(job.record).code.partition("-")[0] != VERSIONS.get(job.stage, f"{ANALYSE}"):
                older += ", of an earlier version of bayesmesh"
    return Condition("", older)
