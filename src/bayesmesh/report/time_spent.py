"""Join the ledgers of all jobs of an experiment: time, gradients and memory per phase."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from bayesmesh.config.declarations import list_analyses
from bayesmesh.errors import StoreError
from bayesmesh.figures.documents import read_json_lines, render_csv
from bayesmesh.files import write_text
from bayesmesh.store.layout import ExperimentLayout

COLUMNS = ("job", "phase", "detail", "seconds", "gradients", "bytes", "peak_memory_bytes", "device")

ORDER = (
    "queue", "launch", "start", "fetch", "decode", "shard", "read", "transfer", "trace", "lower", "compile", "measure", "resume", "init", "initialise",
    "warmup", "finish", "sample", "run", "write", "look", "join", "derive",
    "teardown",
)  # fmt: skip
"""Phases in the order of a job; others follow in the order of the file."""


WAITING = "queue"
"""Phase before the scheduler starts a job; it does not count as time of the job."""

AROUND = ("launch", "start", "teardown")
"""Phases before a job's work and after it."""

DRAWING = ("sample", "run")
"""Phases that make the stored draws."""

SAMPLING = ("warmup", *DRAWING)
"""Phases in which chains move."""

_BEFORE = ("fetch", "shard", "compile", "sample", "assemble", "diagnose")
STAGES = (*_BEFORE, *(each.verb for each in list_analyses()), "report")
"""Prefixes of job names, in the order of the flow."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase of a job; values that were not measured are None.

    `seconds` is wall time, `bytes` counts bytes moved or written, `gradients` counts evaluations of the log density's
    gradient over all chains.
    """

    job: str
    phase: str
    detail: str
    seconds: float | None
    gradients: float | None
    bytes: float | None
    peak_memory_bytes: float | None
    device: str


@dataclasses.dataclass(frozen=True)
class Job:
    """All phases of a job."""

    name: str
    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        """Total wall time of the phases, without the time in the queue."""
        return sum(phase.seconds or 0.0 for phase in self.phases if phase.phase != WAITING)


def read_phases(layout: ExperimentLayout) -> list[Phase]:
    """Return the phases of all jobs of an experiment, by file name.

    Raises:
        StoreError: a line is not a phase; the message names file and line.
    """
    phases = []
    for path in sorted(layout.ledger_part("any").parent.glob("*.jsonl")):
        for number, line in enumerate(read_json_lines(path), 1):
            if not isinstance(line.get("phase"), str):
                raise StoreError(f"{path}, entry {number}: no phase", "delete the file and run the job again")
            phases.append(_phase(path.stem, line))
    return phases


def _phase(job: str, line: Mapping[str, object]) -> Phase:
    numbers = {name: _number(line.get(name)) for name in ("seconds", "gradients", "bytes", "peak_memory_bytes")}
    return Phase(
        job=str(line.get("job") or job),
        phase=str(line["phase"]),
        detail=str(line.get("detail") or ""),
        device=str(line.get("device") or ""),
        **numbers,
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def write_ledger(layout: ExperimentLayout, phases: Sequence[Phase]) -> None:
    """Write ``ledger.csv``: one row per job and phase, in the order of recording."""
    rows = ([getattr(phase, name) for name in COLUMNS] for phase in phases)
    write_text(layout.ledger, render_csv(COLUMNS, rows))


def jobs_of(phases: Sequence[Phase]) -> list[Job]:
    """Group phases by job, jobs and phases in the order of the flow."""
    found: dict[str, list[Phase]] = {}
    for phase in phases:
        found.setdefault(phase.job, []).append(phase)

    def position(phase: Phase) -> int:
        return ORDER.index(phase.phase) if phase.phase in ORDER else len(ORDER)

    def stage(name: str) -> int:
        return next((n for n, prefix in enumerate(STAGES) if name.startswith(prefix)), len(STAGES))

    return [Job(name, tuple(sorted(found[name], key=position))) for name in sorted(found, key=lambda n: (stage(n), n))]


def sampling_seconds(phases: Sequence[Phase]) -> float:
    """Return the seconds of all warmup and sampling phases, summed over jobs; NaN when there are none.

    >>> sampling_seconds([])
    nan
    """
    seconds = [phase.seconds for phase in phases if phase.phase in SAMPLING and phase.seconds is not None]
    return sum(seconds) if seconds else math.nan
