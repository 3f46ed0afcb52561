"""Determine whether an experiment's stored results are as their jobs left them and as the configuration requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bayesmesh.config.versions import ANALYSE, VERSIONS
from bayesmesh.store.lock import describe_writer
from bayesmesh.store.records.jobs import read_record
from bayesmesh.workflow.flow import stages_of
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.reruns import find_damage, is_made_with, is_up_to_date


class Condition(NamedTuple):
    """The condition of an experiment's results.

    Attributes:
        damage: first file that is missing, altered or without a record, and what is wrong with it; empty if there is none.
        older: first job whose results are older than the configuration or than what they were made from; empty if there is none.
    """

    damage: str = ""
    older: str = ""


def jobs_of(plan: Plan, name: str) -> Iterator[tuple[str, Job]]:
    """Yield stage and job of all jobs of an experiment, in the order of the flow."""
    for stage in stages_of(plan.experiments[name]):
        yield from ((stage, job) for job in plan.job(stage, name).of_groups())


def condition_of(plan: Plan, name: str) -> Condition:
    """Return the condition of an experiment's results, without those of jobs that are running or have never run.

    Raises:
        OSError: a lock cannot be read.
    """
    older = ""
    for stage, job in jobs_of(plan, name):
        if describe_writer(job.lock) or (stage == "sample" and not job.record.exists()):
            continue
        if job.aside.exists():
            older = older or job.name
            continue
        if line := find_damage(job):
            return Condition(line)
        if job.record.exists() and not older:
            # A caption or a title changes the page alone.
            is_as_configured = stage == "report" or is_made_with(job, job.digest, plan.code_of_stage(stage, name))
            older = "" if is_as_configured and is_up_to_date(job) else job.name
            if older and read_record(job.record).code.partition("-")[0] != VERSIONS.get(stage, f"{ANALYSE}"):
                older += ", of an earlier version of bayesmesh"
    return Condition("", older)
