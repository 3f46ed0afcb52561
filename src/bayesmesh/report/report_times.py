"""Join the ledgers of the jobs of an experiment: time, gradients and memory per phase.

Only the last successful attempt at each job counts, and of a sampling job one with the chains of the posterior. It states
the time of all iterations that its draws come from, whichever attempt committed them, so the figures are those of a run in
an empty folder. All other attempts are listed apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict

from bayesmesh.config.declarations import declared
from bayesmesh.config.experiment import requested
from bayesmesh.errors import StoreError
from bayesmesh.figures.documents import render_csv
from bayesmesh.files import read_bytes, write_text
from bayesmesh.running.run_ledger import FINISHED, REMEDY, read_rows
from bayesmesh.store.layout import ExperimentLayout

ORDER = (
    "queue", "launch", "start", "fetch", "decode", "shard", "read", "condense", "transfer", "trace", "lower", "compile", "measure", "resume", "init", "initialise",
    "warmup", "finish", "sample", "run", "write", "look", "join", "derive",
    "teardown",
)  # fmt: skip
"""Phases in the order of a job; others follow in the order of the file."""


WAITING = "queue"
"""Phase before the scheduler starts a job; it does not count as time of the job."""

BESIDE = ("write", "look")
"""Phases in parallel with sampling, whose time is in that of sampling."""

AROUND = ("launch", "start", "teardown")
"""Phases before a job's work and after it."""

DRAWING = ("sample", "run")
"""Phases that make the stored draws."""

SAMPLING = ("warmup", *DRAWING)
"""Phases in which chains move."""

STAGES = ("fetch", "shard", "compile", "sample", "assemble", "diagnose")
"""Stages of jobs in the order of the flow; analyses follow by name."""


def _measured(value: object) -> float | None:
    """Return a finite number; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def _text(value: object) -> str:
    """Return a value as text, empty for null."""
    return str(value or "")


Measured = Annotated[int | float | None, BeforeValidator(_measured)]
Text = Annotated[str, BeforeValidator(_text)]


class Phase(BaseModel):
    """A phase of a job; values that were not measured are None.

    `seconds` is wall time, `bytes` counts bytes moved or written, `gradients` counts evaluations of the log density's
    gradient over all chains, without those for which a chain waits. `attempt` names the run of the job, `identity` the chains that it sampled.
    """

    model_config = ConfigDict(frozen=True)

    job: str
    phase: str
    detail: Text = ""
    seconds: Measured = None
    gradients: Measured = None
    bytes: Measured = None
    peak_memory_bytes: Measured = None
    device: Text = ""
    attempt: Text = ""
    identity: Text = ""


COLUMNS = tuple(Phase.model_fields)
"""Columns of ``ledger.csv``."""


class OtherAttempts(NamedTuple):
    """Attempts at a job that did not make the present results, for one reason; `seconds` is their time together."""

    job: str
    reason: str
    num_attempts: int
    seconds: float


class TimeSpent(NamedTuple):
    """Phases that made the present results, the attempts that did not, and the jobs whose times are missing."""

    phases: list[Phase]
    others: list[OtherAttempts]
    missing: list[str]


def read_time(layout: ExperimentLayout, config: Mapping[str, object], origin: Mapping[str, object]) -> TimeSpent:
    """Return the phases that made the present results, by file name, and the attempts that did not.

    Args:
        layout: files of the experiment.
        config: configuration of the experiment, whose analyses count.
        origin: attributes of the posterior: ``identity`` and ``groups``. Without them no sampling job counts.

    Raises:
        StoreError: a ledger cannot be read, or a line is damaged; the message names file and line.
    """
    attempts: dict[tuple[str, str], list[Phase]] = {}
    for phase in _read_phases(layout):
        attempts.setdefault((phase.job, phase.attempt), []).append(phase)
    wanted = _wanted_jobs(config, origin)
    reasons = {key: _reason(wanted.get(key[0]), rows) for key, rows in attempts.items()}
    present = {job: attempt for (job, attempt), reason in reasons.items() if not reason}
    time = TimeSpent([], [], sorted(wanted.keys() - present.keys()))
    others = dict[tuple[str, str], list[float]]()
    for (job, attempt), rows in attempts.items():
        if present.get(job) == attempt:
            time.phases.extend(row for row in rows if row.phase != FINISHED)
        else:
            reason = reasons[job, attempt] or "replaced by a later run"
            others.setdefault((job, reason), []).append(work_seconds(rows))
    time.others.extend(OtherAttempts(*key, len(spent), sum(spent)) for key, spent in others.items())
    return time


def _wanted_jobs(config: Mapping[str, object], origin: Mapping[str, object]) -> dict[str, str]:
    """Return the jobs that made the present results -> the identity of their chains, empty for jobs without chains."""
    verbs = [declared(name).verb for name in requested(config)]
    groups = origin.get("groups")
    names = [str(folder).rpartition("/")[2] for folder in groups] if isinstance(groups, list) else []
    return dict.fromkeys(("compile", "assemble", "diagnose", *verbs), "") | {
        f"sample-{name}": str(origin.get("identity")) for name in names
    }


def _reason(identity: str | None, rows: Sequence[Phase]) -> str:
    """Return why an attempt did not make the present results; empty if it may have.

    Args:
        identity: chains that the job should have; None if the experiment has no such job.
        rows: phases of the attempt.
    """
    if not rows[0].attempt:
        return "written by an earlier version"
    # The scheduler's row on the end of the job may follow.
    if all(row.phase != FINISHED for row in rows):
        return "failed, stopped or still running"
    if identity is None:
        return "not part of the present results"
    return "" if rows[-1].identity == identity else "other chains"


def _read_phases(layout: ExperimentLayout) -> list[Phase]:
    """Return the phases of all attempts except at the report, which shows itself only when it runs again."""
    phases = []
    for path in sorted(layout.ledger_part("any").parent.glob("*.jsonl")):
        for row in read_rows(path):
            try:
                phases.append(Phase.model_validate({**row, "job": str(row.get("job") or path.stem)}))
            except ValueError as error:
                raise StoreError(f"{path}: not a phase: {row}", REMEDY) from error
    return [phase for phase in phases if phase.job != "report"]


def write_ledger(layout: ExperimentLayout, phases: Sequence[Phase]) -> None:
    """Write ``ledger.csv``: one row per job and phase, in the order of recording."""
    write_text(layout.ledger, _render(phases))


def check_table(layout: ExperimentLayout) -> Iterator[str]:
    """Yield one line if ``ledger.csv`` has a row that the ledgers of the jobs lack; a job may have run since.

    Raises:
        StoreError: a ledger cannot be read, or a line is damaged.
    """
    known = set(_render(_read_phases(layout)).splitlines())
    if not set(read_bytes(layout.ledger).decode().splitlines()) <= known:
        yield f"{layout.ledger}: differs from the ledgers of the jobs: it was changed, or a ledger was replaced by an older one"


def _render(phases: Sequence[Phase]) -> str:
    return render_csv(COLUMNS, ([*phase.model_dump().values()] for phase in phases))


def work_seconds(phases: Sequence[Phase]) -> float:
    """Return the total wall time of phases, without the time in the queue and of what runs beside sampling."""
    return sum(phase.seconds or 0.0 for phase in phases if phase.phase not in (WAITING, *BESIDE))


def jobs_of(phases: Sequence[Phase]) -> dict[str, list[Phase]]:
    """Return job -> phases, jobs and phases in the order of the flow."""
    found: dict[str, list[Phase]] = {}
    for phase in sorted(phases, key=lambda p: ORDER.index(p.phase) if p.phase in ORDER else len(ORDER)):
        found.setdefault(phase.job, []).append(phase)

    def stage(name: str) -> int:
        return next((n for n, stage in enumerate(STAGES) if name == stage or name.startswith(f"{stage}-")), len(STAGES))

    return {name: found[name] for name in sorted(found, key=lambda n: (stage(n), n))}


def sampling_seconds(time: TimeSpent) -> float:
    """Return the seconds of all warmup and sampling phases, summed over jobs; NaN when those of a job are missing.

    >>> sampling_seconds(TimeSpent([], [], []))
    nan
    """
    if any(job.startswith("sample") for job in time.missing):
        return math.nan
    seconds = [phase.seconds for phase in time.phases if phase.phase in SAMPLING and phase.seconds is not None]
    return sum(seconds) if seconds else math.nan
