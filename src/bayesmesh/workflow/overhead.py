"""Record a job's overhead in the ledger: waiting in the queue, starting, ending.

A cluster job starts Snakemake, which starts Python, before a stage begins. Slurm knows when a job was submitted,
started and ended, and the system knows when this process began; the remaining time is Snakemake's. Stages do not import
this module, so a change here makes no stage run again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bayesmesh.store.ledger import Ledger, LedgerRow, read_rows
from bayesmesh.store.slurm_job import job_id
from bayesmesh.workflow.slurm.queue import JobTimes, job_times, queued_job_times

ENDED = "teardown"


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


def add_start(ledger: Ledger, environ: Mapping[str, str], started: float | None = None) -> None:
    """Add the phases before a job's work; called just before the work begins.

    `queue` is the time from submission to start or restart. `launch` is the time of Snakemake: from the
    start of the job, or from the end of the previous stage in the same job, to the start of this process. `start` is
    the time of this process: Python, imports, and waiting for a GPU.

    Args:
        ledger: of this stage; ledgers in the same folder show earlier stages of the job.
        environ: environment variables of the job.
        started: when the job began, in seconds since 1970, if not with this process.
    """
    now, begun, job = time.time(), started or process_started(), job_id(environ)
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
    folder = ledger.path.parent
    ordered = sorted(_job_rows(folder), key=lambda row: row["at"])
    last = {row["slurm_job"]: row for row in ordered if row["phase"] != ENDED}
    last.pop(job_id(environ), None)
    if not last:
        return
    part = Ledger(folder / "slurm.json", "slurm")
    known = {row["detail"] for row in read_rows(part.path)} if part.path.exists() else set()
    for number, times in job_times(sorted(last, key=int), environ).items():
        row, detail = last[number], f"Slurm job {number}"
        if times.ended is not None and detail not in known:
            part.add(ENDED, max(0.0, times.ended - row["at"]), detail=detail)
            # `add` filled in the values of this process.
            part.rows[-1] |= {"job": row["job"], "device": row["device"], "peak_memory_bytes": 0}
            part.rows[-1] |= {"attempt": row["attempt"], "identity": row["identity"]}
    part.save()


def _job_rows(folder: Path) -> Iterator[LedgerRow]:
    """Yield the rows that jobs of a scheduler wrote to any ledger of the folder."""
    for path in sorted(folder.glob("*.json")):
        yield from (row for row in read_rows(path) if row["slurm_job"].isdigit())
