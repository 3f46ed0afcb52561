"""Join the ledgers of the jobs of an experiment: time, gradients and memory per phase.

Only the last successful attempt at each job counts; for a sampling job, only one that sampled the chains of the
posterior. Its rows include the time of all iterations that produced these draws, also of those that earlier attempts
committed, so the figures are those of a run in an empty folder. All other attempts are listed separately.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict

from bayesmesh.analyses.figures.documents import render_csv
from bayesmesh.errors import StoreError
from bayesmesh.files import read_bytes, write_text
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.ledger import FINISHED, REMEDY, read_rows

ORDER = (
    "queue", "launch", "start", "fetch", "decode", "shard", "read", "condense", "transfer", "trace", "lower", "compile", "measure", "resume", "init", "initialise",
    "warmup", "finish", "sample", "run", "write", "look", "join", "derive",
    "teardown",
)  # fmt: skip
"""Phases in the order in which jobs run them; other phases follow in the order of the file."""


WAITING = "queue"
"""Phase before the scheduler starts a job, which does not count as time of the job."""

BESIDE = ("write", "look")
"""Phases in parallel with sampling, whose time is part of the sampling time."""

AROUND = ("launch", "start", "teardown")
"""Phases before and after a job's work."""

DRAWING = ("sample", "run")
"""Phases that produce the stored draws."""

SAMPLING = ("warmup", *DRAWING)
"""Phases in which chains move."""

STAGES = ("fetch", "shard", "compile", "sample", "assemble", "diagnose")
"""Stages in the order of the flow; analyses follow by name."""


def _measured(value: object) -> float | None:
    """Return a finite number; None for any other value."""
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

    Attributes:
        job: name of the job.
        phase, detail: name of the phase, and details.
        seconds: wall time.
        gradients: number of gradient evaluations of the log density, over all chains, without those during which a
            chain waits.
        bytes: bytes moved or written.
        peak_memory_bytes: peak memory of the process so far.
        device: name of the device.
        attempt: random name of this run of the job.
        identity: identity of the sampled chains; empty for other jobs.
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
    """Attempts at a job that did not make the present results, for one reason; `seconds` is their total time."""

    job: str
    reason: str
    num_attempts: int
    seconds: float


class TimeSpent(NamedTuple):
    """Phases that made the present results, attempts that did not, and names of jobs whose times are missing."""

    phases: list[Phase]
    others: list[OtherAttempts]
    missing: list[str]


def read_time(layout: ExperimentLayout, analyses: Iterable[str], origin: Mapping[str, object]) -> TimeSpent:
    """Return the phases that made the present results, attempts that did not, and jobs whose times are missing.

    Args:
        layout: files of the experiment.
        analyses: verbs of the requested analyses.
        origin: attributes of the posterior: ``identity`` and ``groups``. Without them, no sampling job counts.

    Returns:
        The times; phases are in the order of the ledger files' names.

    Raises:
        StoreError: a ledger cannot be read, or is damaged; the message names the file.
    """
    attempts: dict[tuple[str, str], list[Phase]] = {}
    for phase in _read_phases(layout):
        attempts.setdefault((phase.job, phase.attempt), []).append(phase)
    wanted = _wanted_jobs(analyses, origin)
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


def _wanted_jobs(analyses: Iterable[str], origin: Mapping[str, object]) -> dict[str, str]:
    """Return job -> identity of its chains, for jobs that made the present results; empty for jobs without chains."""
    groups = origin.get("groups")
    names = [str(folder).rpartition("/")[2] for folder in groups] if isinstance(groups, list) else []
    return dict.fromkeys(("compile", "assemble", "diagnose", *analyses), "") | {
        f"sample-{name}": str(origin.get("identity")) for name in names
    }


def _reason(identity: str | None, rows: Sequence[Phase]) -> str:
    """Return the reason why an attempt did not make the present results; empty if it may have made them.

    Args:
        identity: identity of the chains that the job should sample; None if the experiment has no such job.
        rows: phases of the attempt.
    """
    # The last row may be the scheduler's, on the end of the job.
    if all(row.phase != FINISHED for row in rows):
        return "failed, stopped or still running"
    if identity is None:
        return "not part of the present results"
    return "" if rows[-1].identity == identity else "other chains"


def _read_phases(layout: ExperimentLayout) -> list[Phase]:
    """Return the phases of all attempts at all jobs except the report, whose own times come too late for its page."""
    phases = []
    for path in sorted(layout.ledger_part("any").parent.glob("*.json")):
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
    """Yield one line if ``ledger.csv`` has a row that the ledgers of the jobs lack.

    The ledgers may have further rows, because a job may have run since.

    Raises:
        StoreError: a ledger cannot be read, or is damaged.
    """
    known = set(_render(_read_phases(layout)).splitlines())
    if not set(read_bytes(layout.ledger).decode().splitlines()) <= known:
        yield f"{layout.ledger}: differs from the ledgers of the jobs: it was changed, or a ledger was replaced by an older one"


def _render(phases: Sequence[Phase]) -> str:
    return render_csv(COLUMNS, ([*phase.model_dump().values()] for phase in phases))


def work_seconds(phases: Sequence[Phase]) -> float:
    """Return the total wall time of phases in seconds, without the queue and phases in parallel with sampling."""
    return sum(phase.seconds or 0.0 for phase in phases if phase.phase not in (WAITING, *BESIDE))


def jobs_of(phases: Sequence[Phase]) -> dict[str, list[Phase]]:
    """Return job -> its phases, with jobs and phases in the order of the flow."""
    found: dict[str, list[Phase]] = {}
    for phase in sorted(phases, key=lambda p: ORDER.index(p.phase) if p.phase in ORDER else len(ORDER)):
        found.setdefault(phase.job, []).append(phase)

    def stage(name: str) -> int:
        return next((n for n, stage in enumerate(STAGES) if name == stage or name.startswith(f"{stage}-")), len(STAGES))

    return {name: found[name] for name in sorted(found, key=lambda n: (stage(n), n))}


def sampling_seconds(time: TimeSpent) -> float:
    """Return the total seconds of warmup and sampling over all jobs; NaN if those of any job are missing.

    >>> sampling_seconds(TimeSpent([], [], []))
    nan
    """
    if any(job.startswith("sample") for job in time.missing):
        return math.nan
    seconds = [phase.seconds for phase in time.phases if phase.phase in SAMPLING and phase.seconds is not None]
    return sum(seconds) if seconds else math.nan
