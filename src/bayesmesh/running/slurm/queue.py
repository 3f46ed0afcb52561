"""status: this folder's jobs in the queue of Slurm, where there is one."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["Queue", "QueuedJob", "parse_queue", "read_queue"]

TIMEOUT_SECONDS = 1.0
"""A scheduler that does not answer is not waited for: the table should be there in two seconds."""

_COMMENT = re.compile(r"^(?:rule|group)_(\w+?)(?:_wildcards_(.*))?$")


@dataclasses.dataclass(frozen=True)
class QueuedJob:
    """A job of one experiment: its rule, its state in Slurm's words, its node or the reason why it waits."""

    rule: str
    state: str
    node: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Queue:
    """What the scheduler's queue says.

    Attributes:
        jobs: experiment -> its jobs that wait or run.
        failure: why it could not be asked; empty where it could, and where there is none.
    """

    jobs: Mapping[str, Sequence[QueuedJob]] = dataclasses.field(default_factory=dict)
    failure: str = ""


def read_queue(experiments: Iterable[str], folder: Path) -> Queue:
    """Ask for the jobs that this user submitted in a folder."""
    if shutil.which("squeue") is None:
        return Queue()
    command = ["squeue", "--me", "--noheader", "--format=%T|%N|%r|%Z|%k"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Queue(failure=f"squeue did not answer in {TIMEOUT_SECONDS:g} s")
    except OSError as error:
        return Queue(failure=f"squeue cannot be run: {error.strerror}")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return Queue(failure=lines[-1] if lines else f"squeue ended with exit code {done.returncode}")
    return Queue(parse_queue(done.stdout, experiments, folder))


def parse_queue(text: str, experiments: Iterable[str], folder: Path) -> dict[str, list[QueuedJob]]:
    """Sort lines of ``state|node|reason|folder|comment`` by experiment; the executor's comment names rule and wildcards.

    >>> parse_queue("RUNNING|n1|None|/a|rule_sample_wildcards_digits_group-000", ["digits"], Path("/a"))
    {'digits': [QueuedJob(rule='sample', state='RUNNING', node='n1', reason='None')]}
    >>> parse_queue("PENDING||Priority|/a|rule_results-digits_assemble_diagnose_report", ["digits"], Path("/a"))
    {'digits': [QueuedJob(rule='results', state='PENDING', node='', reason='Priority')]}
    """
    found: dict[str, list[QueuedJob]] = {}
    names = set(experiments)
    for line in text.splitlines():
        state, node, reason, where, comment = [*line.split("|", 4), "", "", "", "", ""][:5]
        if where != str(folder):
            continue
        rule, name = _rule_and_experiment(comment.strip(), names)
        if name in names:
            found.setdefault(name, []).append(QueuedJob(rule, state, node, reason))
    return found


def _rule_and_experiment(comment: str, names: set[str]) -> tuple[str, str]:
    """Names in an executor's comment; empty where it has none.

    A job of what follows the chains is named after the experiment, with the names of its rules behind that.
    """
    if (behind := comment.removeprefix("rule_results-")) != comment:
        # An experiment's name may begin with another's.
        return "results", max((name for name in names if behind.startswith(f"{name}_")), key=len, default="")
    match = _COMMENT.match(comment)
    return (match[1], re.sub(r"_group-\d+$", "", match[2] or "")) if match else ("", "")
