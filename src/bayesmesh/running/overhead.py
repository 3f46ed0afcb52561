"""Record a job's overhead in the ledger: waiting in the queue, starting, ending.

A cluster job starts Snakemake twice and Python once before a stage begins. Slurm knows when a job was submitted,
started and ended, and the system knows when this process began; the remaining time is Snakemake's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesmesh.running.ledger import Ledger

__all__ = ["ENDED", "add_ends", "add_start", "process_started"]

JOB_VARIABLE = "SLURM_JOB_ID"
TIMEOUT_SECONDS = 5.0
ENDED = "teardown"


@dataclasses.dataclass(frozen=True)
class _Times:
    """Times at which a job was submitted, started and ended, in seconds since 1970; None before that happened."""

    submitted: float | None = None
    started: float | None = None
    ended: float | None = None


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
    now, begun, job = time.time(), process_started(), environ.get(JOB_VARIABLE, "")
    if job:
        times = _ask_squeue([job], environ).get(job, _Times())
        before = _last_row(ledger.path.parent, job)
        is_first = before is None or (times.started is not None and before < times.started)
        if is_first and times.started is not None:
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
    last: dict[str, dict[str, Any]] = {}
    for row in _rows(ledger.path.parent):
        number = row.get("slurm_job")
        if number and row.get("phase") != ENDED and row.get("at", 0.0) >= last.get(number, row).get("at", 0.0):
            last[number] = row
    last.pop(environ.get(JOB_VARIABLE, ""), None)
    if not last:
        return
    part = Ledger(ledger.path.with_name("slurm.jsonl"), "slurm", append=True)
    for number, times in _ask(sorted(last, key=int), environ).items():
        row = last[number]
        is_there = any(old["job"] == row["job"] and old["detail"] == f"Slurm job {number}" for old in part.rows)
        if times.ended is not None and not is_there:
            part.device = row["device"]
            part.add(ENDED, max(0.0, times.ended - row["at"]), detail=f"Slurm job {number}")
            # `add` filled in the values of this process.
            part.rows[-1].update(job=row["job"], peak_memory_bytes=0)
    part.save()


def _last_row(folder: Path, job: str) -> float | None:
    """Return when the last phase of a scheduler's job ended, in any ledger of the folder."""
    return max((row["at"] for row in _rows(folder) if row.get("slurm_job") == job), default=None)


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all ledgers of a folder; skip damaged lines, which the report names."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict) and isinstance(row.get("at"), float) and str(row.get("slurm_job")).isdigit():
                    yield row


def _ask(jobs: Collection[str], environ: Mapping[str, str]) -> dict[str, _Times]:
    """Ask the queue, then the accounting for jobs that have left the queue."""
    found = _ask_squeue(jobs, environ)
    forgotten = [job for job in jobs if job not in found]
    return {**found, **(_ask_sacct(forgotten, environ) if forgotten else {})}


def _ask_squeue(jobs: Collection[str], environ: Mapping[str, str]) -> dict[str, _Times]:
    lines = _lines(
        ["squeue", "--states=all", "--noheader", f"--jobs={','.join(jobs)}", "--format=%i|%V|%S|%e|%T"], environ
    )
    found = {}
    for number, submitted, started, ended, state in (line.split("|") for line in lines if line.count("|") == 4):
        # For a running job, squeue reports the end by its time limit.
        is_over = state not in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING")
        found[number] = _Times(_number(submitted), _number(started), _number(ended) if is_over else None)
    return found


def _ask_sacct(jobs: Collection[str], environ: Mapping[str, str]) -> dict[str, _Times]:
    form = ["sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={','.join(jobs)}"]
    lines = _lines([*form, "--format=JobIDRaw,Submit,Start,End"], environ)
    rows = (line.split("|") for line in lines if line.count("|") == 3)
    return {number: _Times(*map(_number, times)) for number, *times in rows}


def _lines(command: list[str], environ: Mapping[str, str]) -> list[str]:
    """Return lines of the scheduler's answer, with times in seconds since 1970; none if it does not answer."""
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        return []
    asked = {**environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            command, env=asked, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines()] if done.returncode == 0 else []


def _number(text: str) -> float | None:
    """Return seconds; None for ``Unknown``, ``N/A`` and the like."""
    return float(text) if text.isdigit() else None
