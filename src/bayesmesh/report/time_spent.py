"""Join the ledgers of all jobs of an experiment: time, gradients and memory per phase."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from bayesmesh.config.declarations import list_analyses
from bayesmesh.errors import StoreError
from bayesmesh.figures.documents import render_csv
from bayesmesh.files import write_text
from bayesmesh.store.layout import ExperimentLayout

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
    gradient over all chains.
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


COLUMNS = tuple(Phase.model_fields)
"""Columns of ``ledger.csv``."""


def read_phases(layout: ExperimentLayout) -> list[Phase]:
    """Return the phases of all jobs of an experiment, by file name.

    Raises:
        StoreError: a file cannot be read, or a line is not a phase; the message names file and line.
    """
    phases, remedy = [], "delete the file and run the job again"
    for path in sorted(layout.ledger_part("any").parent.glob("*.jsonl")):
        try:
            # Not splitlines(), which also splits at separators that JSON leaves within a text.
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"{path}: cannot be read: {error}", remedy) from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = {**json.loads(line)}
                phases.append(Phase.model_validate({**row, "job": str(row.get("job") or path.stem)}))
            except (ValueError, TypeError, RecursionError) as error:
                raise StoreError(f"{path}, line {number}: not a phase: {line[:80]}", remedy) from error
    return phases


def write_ledger(layout: ExperimentLayout, phases: Sequence[Phase]) -> None:
    """Write ``ledger.csv``: one row per job and phase, in the order of recording."""
    write_text(layout.ledger, render_csv(COLUMNS, ([*phase.model_dump().values()] for phase in phases)))


def work_seconds(phases: Sequence[Phase]) -> float:
    """Return the total wall time of phases, without the time in the queue."""
    return sum(phase.seconds or 0.0 for phase in phases if phase.phase != WAITING)


def jobs_of(phases: Sequence[Phase]) -> dict[str, list[Phase]]:
    """Return job -> phases, jobs and phases in the order of the flow."""
    found: dict[str, list[Phase]] = {}
    for phase in sorted(phases, key=lambda p: ORDER.index(p.phase) if p.phase in ORDER else len(ORDER)):
        found.setdefault(phase.job, []).append(phase)

    def stage(name: str) -> int:
        return next((n for n, prefix in enumerate(STAGES) if name.startswith(prefix)), len(STAGES))

    return {name: found[name] for name in sorted(found, key=lambda n: (stage(n), n))}


def sampling_seconds(phases: Sequence[Phase]) -> float:
    """Return the seconds of all warmup and sampling phases, summed over jobs; NaN when there are none.

    >>> sampling_seconds([])
    nan
    """
    seconds = [phase.seconds for phase in phases if phase.phase in SAMPLING and phase.seconds is not None]
    return sum(seconds) if seconds else math.nan
