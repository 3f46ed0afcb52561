"""Read this folder's jobs and the times of jobs from the Slurm queue and accounting, if there are any."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TIMEOUT_SECONDS = 1.0
"""Short, so that the status table appears within two seconds even if the scheduler hangs."""

TIMES_TIMEOUT_SECONDS = 5.0

_COMMENT = re.compile(r"^(?:rule|group)_(\w+?)(?:_wildcards_(.*))?$")


class QueuedJob(NamedTuple):
    """A job of one experiment: its rule, its Slurm state, its node, and its reason for waiting."""

    rule: str
    state: str
    node: str
    reason: str


_NO_CLUSTER = "Could not establish a configuration source"
"""Message of Slurm's commands on a machine that belongs to no cluster."""


class Queue(NamedTuple):
    """The jobs in the scheduler's queue.

    Attributes:
        jobs: experiment -> its waiting and running jobs.
        failure: why the queue could not be read; empty on success, and if there is no scheduler.
    """

    jobs: Mapping[str, Sequence[QueuedJob]] = {}
    failure: str = ""


def read_queue(experiments: Iterable[str], folder: Path) -> Queue:
    """Return the jobs that this user submitted from a folder."""
    command = ["squeue", "--me", "--noheader", "--format=%T|%N|%r|%Z|%k"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        return Queue()
    except subprocess.TimeoutExpired:
        return Queue(failure=f"squeue did not answer in {TIMEOUT_SECONDS:g} s")
    except OSError as error:
        return Queue(failure=f"squeue cannot be run: {error.strerror}")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        if any(_NO_CLUSTER in line for line in lines):
            return Queue()
        return Queue(failure=lines[-1] if lines else f"squeue ended with exit code {done.returncode}")
    return Queue(parse_queue(done.stdout, experiments, folder))


def parse_queue(text: str, experiments: Iterable[str], folder: Path) -> dict[str, list[QueuedJob]]:
    """Group lines ``state|node|reason|folder|comment`` by experiment; the comment names rule and wildcards.

    >>> parse_queue("RUNNING|n1|None|/a|rule_sample_wildcards_digits_group-000", ["digits"], Path("/a"))
    {'digits': [QueuedJob(rule='sample', state='RUNNING', node='n1', reason='None')]}
    >>> parse_queue("PENDING||Priority|/a|rule_results-digits_assemble_diagnose_report", ["digits"], Path("/a"))
    {'digits': [QueuedJob(rule='results', state='PENDING', node='', reason='Priority')]}
    """
    found: dict[str, list[QueuedJob]] = {}
    names = set(experiments)
    for state, node, reason, where, comment in (
        line.split("|", 4) for line in text.splitlines() if line.count("|") > 3
    ):
        rule, name = _rule_and_experiment(comment.strip(), names)
        if where == str(folder) and name in names:
            found.setdefault(name, []).append(QueuedJob(rule, state, node, reason))
    return found


def _rule_and_experiment(comment: str, names: set[str]) -> tuple[str, str]:
    """Return rule and experiment from an executor's comment; empty strings if it has none.

    The grouped job of the stages after sampling is named after the experiment, followed by the names of its rules.
    """
    if (behind := comment.removeprefix("rule_results-")) != comment:
        # One experiment's name may be a prefix of another's.
        return "results", max((name for name in names if behind.startswith(f"{name}_")), key=len, default="")
    match = _COMMENT.match(comment)
    return (match[1], re.sub(r"_group-\d+$", "", match[2] or "")) if match else ("", "")


class JobTimes(NamedTuple):
    """Times at which a job was submitted, started and ended, in seconds since 1970; None before that happened."""

    submitted: float | None = None
    started: float | None = None
    ended: float | None = None


def job_times(jobs: Collection[str], environ: Mapping[str, str]) -> dict[str, JobTimes]:
    """Return the times of jobs that the queue or the accounting still knows."""
    found = queued_job_times(jobs, environ)
    forgotten = [job for job in jobs if job not in found]
    return found | (_ask_sacct(forgotten, environ) if forgotten else {})


def queued_job_times(jobs: Collection[str], environ: Mapping[str, str]) -> dict[str, JobTimes]:
    """Return the times of jobs that the queue still knows."""
    command = ["squeue", "--states=all", "--noheader", f"--jobs={','.join(jobs)}", "--format=%i|%V|%S|%e|%T"]
    found = {}
    for number, submitted, started, ended, state in _rows(command, 5, environ):
        # For a running job, squeue reports the end by its time limit.
        is_over = state not in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING")
        found[number] = JobTimes(_number(submitted), _number(started), _number(ended) if is_over else None)
    return found


def _ask_sacct(jobs: Collection[str], environ: Mapping[str, str]) -> dict[str, JobTimes]:
    command = ["sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={','.join(jobs)}"]
    rows = _rows([*command, "--format=JobIDRaw,Submit,Start,End"], 4, environ)
    return {number: JobTimes(*map(_number, times)) for number, *times in rows}


def _rows(command: list[str], num_cells: int, environ: Mapping[str, str]) -> list[list[str]]:
    """Return the whole rows of the scheduler's answer, with times in seconds since 1970; none if it does not answer."""
    asked = {**environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            command, env=asked, capture_output=True, text=True, timeout=TIMES_TIMEOUT_SECONDS, check=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.strip().split("|") for line in done.stdout.splitlines())
    return [row for row in rows if len(row) == num_cells]


def _number(text: str) -> float | None:
    """Return seconds; None for ``Unknown``, ``N/A`` and the like."""
    return float(text) if text.isdigit() else None
