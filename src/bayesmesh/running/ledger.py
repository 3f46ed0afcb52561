"""The ledger: where a job's time went, one row per phase."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayesmesh.files import atomic_path

__all__ = ["Ledger"]

_log = logging.getLogger("bayesmesh")


class Ledger:
    """Phases of one job, written as JSON lines when the job ends or a phase is worth keeping.

    Args:
        path: file of the job; an earlier run's rows are kept when `append`.
        job: name of the job, such as ``sample-group-000``.
        device: what it ran on.
    """

    def __init__(self, path: Path, job: str, *, append: bool = False) -> None:
        self.path, self.job, self.device = path, job, "cpu"
        self.rows: list[dict[str, Any]] = []
        self._keeps_others = append
        if append and path.exists():
            self.rows = list(_rows_of(path))
        self._first = len(self.rows)

    def add(self, phase: str, seconds: float, *, detail: str = "", gradients: int = 0, num_bytes: int = 0) -> None:
        """Add one row; seconds of wall time, bytes moved or written.

        It also says when it was added, in seconds since 1970, and in which job of a scheduler.
        """
        self.rows.append(
            {
                "job": self.job, "phase": phase, "detail": detail, "seconds": round(seconds, 6), "gradients": gradients,
                "bytes": num_bytes, "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "device": self.device, "at": time.time(), "slurm_job": os.environ.get("SLURM_JOB_ID", ""),
            }
        )  # fmt: skip

    @contextlib.contextmanager
    def phase(self, phase: str, detail: str = "") -> Iterator[None]:
        """Time a block; a block that fails leaves no row."""
        start = time.perf_counter()
        yield
        self.add(phase, time.perf_counter() - start, detail=detail)

    def save(self) -> None:
        """Write all rows, whole or not at all."""
        rows = self.rows
        if self._keeps_others and self.path.exists():
            # Another attempt, of which this one was a copy by mistake, may have ended in the meantime.
            own = self.rows[self._first :]
            rows = [row for row in _rows_of(self.path) if row not in own] + own
        with atomic_path(self.path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an earlier run; a damaged one is left out and named, for no draw depends on it."""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            _log.warning("%s: line %d is damaged and left out: %s", path, number, error)
            continue
        if isinstance(row, dict):
            yield row
