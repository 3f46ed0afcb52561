"""Let a fork of the server stay for the next job of its experiment, with what it has imported, opened and compiled.

It does so after `compile` for `sample`, and, unless the model is a user's own code, which may keep state, after `sample` for
`assemble`; on CPUs and with little memory. It takes a job with the same folder, environment and cores, and only while every
file of code that it has loaded, and every file that its jobs have read, is unchanged. It waits no longer than Snakemake runs.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

NEXT = {"compile": "sample", "sample": "assemble"}
"""Verb -> the verb that its fork may stay for."""

MOST_BYTES = 2**30
"""Largest memory of a fork that stays."""

_CLEAR_PEAK = "5"


class _State:
    """State of this process, if it is a fork.

    Attributes:
        began: when the present job began, in seconds since 1970; None in other processes.
        num_jobs: jobs that this process has begun.
        is_asked: whether the present job is to be followed by another one here.
        checks: say whether the process may do another job.
    """

    began: float | None = None
    num_jobs = 0
    is_asked = False
    checks: list[Callable[[], bool]] = []  # noqa: RUF012 - there is one state


def work_of(words: Sequence[str], *, after: bool = False) -> list[str]:
    """Return verb, folder of the experiment and cores of a job from its arguments; empty if nothing stays for such a job.

    Args:
        words: arguments of ``bayesmesh``.
        after: whether to return those of the job that may follow it instead.

    >>> work_of(["compile", "--spec", "results/digits/specs/compile-12.json", "--cores", "2"], after=True)
    ['sample', 'results/digits', '2']
    """
    given = dict(itertools.pairwise(words))
    verb = NEXT.get(words[0], "") if after and words else "".join(words[:1])
    if verb not in NEXT.values() or "--spec" not in given:
        return []
    return [verb, str(Path(given["--spec"]).parent.parent), given.get("--cores", "")]


def begin_job() -> None:
    """Record that a job begins in this fork, and reset the peak memory of earlier ones."""
    _State.began, _State.is_asked = time.time(), False
    _State.num_jobs += 1
    if _State.num_jobs > 1:
        # A kernel without it reports the peak of all jobs.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def is_fork() -> bool:
    """Return whether this process is a fork of the server."""
    return _State.began is not None


def began_later() -> float | None:
    """Return when the present job began, in seconds since 1970, if this process has done others before; else None."""
    return _State.began if _State.num_jobs > 1 else None


def stay(*, is_possible: bool = True) -> None:
    """Let this process stay for the job that follows this one, if that is possible and it is a fork with little memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    _State.is_asked = is_possible and is_fork() and peak <= MOST_BYTES


def is_asked() -> bool:
    """Return whether the present job has called `stay`."""
    return _State.is_asked


def check_before(check: Callable[[], bool]) -> None:
    """Add a condition for doing another job in this process."""
    _State.checks.append(check)


def is_current() -> bool:
    """Return whether this process may do another job."""
    return all(check() for check in _State.checks)
