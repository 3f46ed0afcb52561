"""status: this folder's jobs in the queue of Slurm, where there is one."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

__all__ = ["QueuedJob", "parse_queue", "queued_jobs"]

TIMEOUT_SECONDS = 1.0
"""A scheduler that does not answer is left out of the table, which should be there in two seconds."""

_COMMENT = re.compile(r"^(?:rule|group)_(\w+?)(?:_wildcards_(.*))?$")


@dataclasses.dataclass(frozen=True)
class QueuedJob:
    """A job of one experiment: its rule, its state in Slurm's words, its node or the reason why it waits."""

    rule: str
    state: str
    node: str
    reason: str


def queued_jobs(experiments: Iterable[str], folder: Path) -> dict[str, list[QueuedJob]]:
    """Return experiment -> its jobs that wait or run, of those submitted in a folder by this user."""
    if shutil.which("squeue") is None:
        return {}
    command = ["squeue", "--me", "--noheader", "--format=%T|%N|%r|%Z|%k"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parse_queue(done.stdout, experiments, folder) if done.returncode == 0 else {}


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
