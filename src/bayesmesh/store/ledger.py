"""The ledger: time and memory of a job, one row per phase.

A file keeps the rows of every attempt at a job, and its own digest.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, cast

from bayesmesh.errors import StoreError
from bayesmesh.store.records.checked import read_checked, write_checked
from bayesmesh.store.slurm_job import job_id

FINISHED = "finished"
"""Phase of the last row of an attempt that succeeded; failed and killed attempts have none."""

REMEDY = "delete the file, which holds times only, and run the job again"


class LedgerRow(TypedDict):
    """One phase of a job.

    Attributes:
        job, phase, detail: what took the time.
        seconds: wall time.
        gradients: evaluations, over all chains, without those for which a chain waits.
        bytes: moved or written.
        peak_memory_bytes: of the process so far.
        device: its name.
        at: when the row was added, in seconds since 1970.
        slurm_job: the scheduler's job, empty without one.
        attempt: random name of the run of the job.
        identity: identity of the chains that were sampled, empty in other jobs.
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
    attempt: str
    identity: str


class Ledger:
    """Phases of one attempt at a job, appended to the file of the job.

    Args:
        path: file of the job.
        job: name of the job, such as ``sample-group-000``.

    Attributes:
        device, identity: device and chain identity of later rows.
        rows: rows of this attempt.
    """

    def __init__(self, path: Path, job: str) -> None:
        self.path, self.job, self.device, self.identity = path, job, "cpu", ""
        self.attempt = secrets.token_hex(4)
        self.rows: list[LedgerRow] = []
        self._num_saved = 0

    def add(self, phase: str, seconds: float, *, detail: str = "", gradients: int = 0, num_bytes: int = 0) -> None:
        """Add one row: seconds of wall time, bytes moved or written.

        The row also records when it was added, in seconds since 1970, and the scheduler's job.
        """
        self.rows.append(
            {
                "job": self.job, "phase": phase, "detail": detail, "seconds": round(seconds, 6), "gradients": gradients,
                "bytes": num_bytes, "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "device": self.device, "at": time.time(), "slurm_job": job_id(os.environ), "attempt": self.attempt,
                "identity": self.identity,
            }
        )  # fmt: skip

    @contextlib.contextmanager
    def phase(self, phase: str, detail: str = "") -> Iterator[None]:
        """Time a block; a block that raises adds no row."""
        start = time.perf_counter()
        yield
        self.add(phase, time.perf_counter() - start, detail=detail)

    def restate(self, phase: str, seconds: float, *, detail: str, gradients: int) -> None:
        """Replace the rows of a phase that are not yet saved by one row."""
        self.rows[self._num_saved :] = [row for row in self.rows[self._num_saved :] if row["phase"] != phase]
        self.add(phase, seconds, detail=detail, gradients=gradients)

    def finish(self) -> None:
        """Add the row that ends a successful attempt."""
        self.add(FINISHED, 0.0)

    def save(self) -> None:
        """Append the rows added since the last call; the file is replaced atomically.

        Other attempts may have written to the file meanwhile.

        Raises:
            StoreError: the file is damaged.
        """
        new, self._num_saved = self.rows[self._num_saved :], len(self.rows)
        if new:
            before = read_rows(self.path) if self.path.exists() else []
            write_checked(self.path, {"file": _name(self.path), "rows": [*before, *new]})


def _name(path: Path) -> str:
    """Return the name of a ledger within the results, so that those of two experiments cannot be exchanged."""
    return f"{path.parent.parent.name}/{path.name}"


def read_rows(path: Path) -> list[LedgerRow]:
    """Return the rows of all attempts.

    Raises:
        StoreError: the file is missing or damaged, or of another job.
    """
    content = read_checked(path, REMEDY, must_have_digest=True)
    if content["file"] != _name(path):
        raise StoreError(f"{path}: is the ledger {content['file']}", REMEDY)
    return cast(list[LedgerRow], content["rows"])
