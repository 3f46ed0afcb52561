"""The ledger: time and memory of a job, one row per phase."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from bayesmesh.files import atomic_path
from bayesmesh.running.slurm.variables import job_id

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
