"""The ledger: time and memory of a job, one row per phase, and its overhead: waiting in the queue, starting, ending.

A cluster job starts Snakemake twice and Python once before a stage begins. Slurm knows when a job was submitted,
started and ended, and the system knows when this process began; the remaining time is Snakemake's.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

from bayesmesh.files import atomic_path
from bayesmesh.running.slurm.queue import JobTimes, job_times, queued_job_times
from bayesmesh.running.slurm.variables import job_id

ENDED = "teardown"

_log = logging.getLogger("bayesmesh")


class LedgerRow(TypedDict):
    """One phase of a job.

    Attributes:
        job, phase, detail: what took the time.
        seconds: wall time.
        gradients: evaluations, over all chains.
        bytes: moved or written.
        peak_memory_bytes: of the process so far.
        device: its name.
        at: when the row was added, in seconds since 1970.
        slurm_job: the scheduler's job, empty without one.
    """

    job: str
    phase: str
    detail: str
    seconds: float
    gradients: int
    bytes: int
    peak_memory_bytes: int
    device: str
    at: float
    slurm_job: str


class Ledger:
    """Phases of one job, written as JSON lines.

    Args:
        path: file of the job.
        job: name of the job, such as ``sample-group-000``.
        append: keep the rows of earlier runs.

    Attributes:
        device: name of the device of later rows.
    """

    def __init__(self, path: Path, job: str, *, append: bool = False) -> None:
        self.path, self.job, self.device = path, job, "cpu"
        self._keeps_others = append
        self.rows: list[LedgerRow] = list(_rows_of(path)) if append and path.exists() else []
        self._first = len(self.rows)

    def add(self, phase: str, seconds: float, *, detail: str = "", gradients: int = 0, num_bytes: int = 0) -> None:
        """Add one row: seconds of wall time, bytes moved or written.

        The row also records when it was added, in seconds since 1970, and the scheduler's job.
        """
        self.rows.append(
            {
                "job": self.job, "phase": phase, "detail": detail, "seconds": round(seconds, 6), "gradients": gradients,
                "bytes": num_bytes, "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "device": self.device, "at": time.time(), "slurm_job": job_id(os.environ),
            }
        )  # fmt: skip

    @contextlib.contextmanager
    def phase(self, phase: str, detail: str = "") -> Iterator[None]:
        """Time a block; a block that raises adds no row."""
        start = time.perf_counter()
        yield
        self.add(phase, time.perf_counter() - start, detail=detail)

    def save(self) -> None:
        """Write all rows atomically."""
        rows = self.rows
        if self._keeps_others and self.path.exists():
            # A scheduler may start a job twice; keep rows that the other copy has written since.
            own = self.rows[self._first :]
            rows = [row for row in _rows_of(self.path) if row not in own] + own
        with atomic_path(self.path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def process_started(proc: Path = Path("/proc")) -> float | None:
    """Return the start time of this process in seconds since 1970; None if the system does not report it.

    Args:
        proc: the proc file system.
    """
    try:
        # The name in parentheses may contain anything; field 22 counts ticks since boot.
        ticks = float((proc / "self" / "stat").read_text().rpartition(")")[2].split()[19])
        uptime = float((proc / "uptime").read_text().split()[0])
        return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def add_start(ledger: Ledger, environ: Mapping[str, str]) -> None:
    """Add the phases before a job's work; called just before the work begins.

    `queue` is the time from submission to start or restart. `launch` is the time of Snakemake's processes: from the
    start of the job, or from the end of the previous stage in the same job, to the start of this process. `start` is
    the time of this process: Python, imports, and waiting for a GPU.

    Args:
        ledger: of this stage; ledgers in the same folder show earlier stages of the job.
        environ: environment variables of the job.
    """
    now, begun, job = time.time(), process_started(), job_id(environ)
    if job:
        times = queued_job_times([job], environ).get(job, JobTimes())
        before = max((row["at"] for row in _job_rows(ledger.path.parent) if row["slurm_job"] == job), default=None)
        if times.started is not None and (before is None or before < times.started):
            before = times.started
            if times.submitted is not None:
                ledger.add("queue", max(0.0, times.started - times.submitted), detail=f"Slurm job {job}")
        if before is not None and begun is not None:
            ledger.add("launch", max(0.0, begun - before), detail=f"Slurm job {job}")
    if begun is not None:
        ledger.add("start", max(0.0, now - begun))


def add_ends(ledger: Ledger, environ: Mapping[str, str]) -> None:
    """Write the time that each scheduler job of an experiment took after its work, to a separate ledger file.

    Covers jobs that have ended and that the scheduler still remembers, so not the calling job.

    Args:
        ledger: of the calling stage; ledgers in the same folder name their jobs.
        environ: environment variables of the job.
    """
    ordered = sorted(_job_rows(ledger.path.parent), key=lambda row: row["at"])
    last = {row["slurm_job"]: row for row in ordered if row["phase"] != ENDED}
    last.pop(job_id(environ), None)
    if not last:
        return
    part = Ledger(ledger.path.with_name("slurm.jsonl"), "slurm", append=True)
    for number, times in job_times(sorted(last, key=int), environ).items():
        row = last[number]
        is_there = any(old["job"] == row["job"] and old["detail"] == f"Slurm job {number}" for old in part.rows)
        if times.ended is not None and not is_there:
            part.device = row["device"]
            part.add(ENDED, max(0.0, times.ended - row["at"]), detail=f"Slurm job {number}")
            # `add` filled in the values of this process.
            part.rows[-1] |= {"job": row["job"], "peak_memory_bytes": 0}
    part.save()


def _job_rows(folder: Path) -> Iterator[LedgerRow]:
    """Yield the rows that jobs of a scheduler wrote to any ledger of the folder."""
    for path in sorted(folder.glob("*.jsonl")):
        for row in _rows_of(path):
            if isinstance(row.get("at"), float) and str(row.get("slurm_job")).isdigit():
                yield row


def _rows_of(path: Path) -> Iterator[LedgerRow]:
    """Yield the rows of an earlier run; skip damaged ones with a warning, because no draw depends on them."""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            row: LedgerRow = json.loads(line)
        except ValueError as error:
            _log.warning("%s: skipped damaged line %d: %s", path, number, error)
            continue
        if isinstance(row, dict):
            yield row
