"""The ledger: time and memory of a job, one row per phase.

A file keeps the rows of every attempt at a job. Each line carries a digest that covers all lines before it, and the last
line ends the file, so that a changed, removed or moved line is found. Lines of earlier versions have no digest; they may
stand at the beginning only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

from bayesmesh.errors import StoreError
from bayesmesh.files import atomic_path, read_bytes
from bayesmesh.store.slurm_job import job_id

FINISHED = "finished"
"""Phase of the last row of an attempt that succeeded; failed and killed attempts have none."""

REMEDY = "delete the file, which holds times only, and run the job again"

_DIGEST, _END = "digest", {"end": True}


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
        attempt: random name of the run of the job; rows of earlier versions have none.
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

        Other attempts may have written to the file meanwhile. Damaged lines stay, for a reader to find.
        """
        lines = [line for line in _walk(self.path) if not line.is_end] if self.path.exists() else []
        digest, texts = lines[-1].digest if lines else _first_digest(self.path), [line.text for line in lines]
        new, self._num_saved = self.rows[self._num_saved :], len(self.rows)
        for entry in [*new, _END] if new else []:
            digest = _extend(digest, json.dumps(entry))
            texts.append(json.dumps({**entry, _DIGEST: digest}))
        if new:
            with atomic_path(self.path) as temporary:
                temporary.write_text("".join(text + "\n" for text in texts), encoding="utf-8", errors="surrogateescape")


class _Line(NamedTuple):
    """A line of a ledger: its text, its row if it has one, the digest of the file up to it, and what is wrong with it."""

    number: int
    text: str
    digest: str
    row: LedgerRow | None = None
    problem: str = ""
    is_end: bool = False


def _first_digest(path: Path) -> str:
    """Return what the digests of a ledger start from, so that ledgers of two experiments cannot be exchanged."""
    return f"{path.parent.parent.name}/{path.name}"


def _extend(digest: str, text: str) -> str:
    return hashlib.sha256((digest + text).encode("utf-8", "surrogateescape")).hexdigest()


def _walk(path: Path) -> Iterator[_Line]:
    """Yield the lines of a ledger that are not empty.

    Raises:
        OSError: the file cannot be read.
    """
    # Not splitlines(), which also splits at separators that JSON leaves within a text.
    texts = read_bytes(path).decode("utf-8", "surrogateescape").split("\n")
    before, is_older, is_over = _first_digest(path), True, False
    for number, text in enumerate(texts, 1):
        if not text:
            continue
        entry, problem = _parse(text), ""
        stated = entry.pop(_DIGEST, None)
        is_older = is_older and stated is None
        expected = _extend(before, text if is_older else json.dumps(entry))
        if not entry or (is_older and "attempt" in entry):
            problem = f"not a phase: {text[:80]!a}"
        elif not is_older and (is_over or text != json.dumps({**entry, _DIGEST: expected})):
            problem = "was changed, or lines before it were changed, removed or moved"
        is_over = not problem and entry == _END
        # After a damaged line the chain goes on from what the line states, so that one defect is reported as one line.
        before = stated if isinstance(stated, str) else expected
        row = cast(LedgerRow, entry) if entry and entry != _END else None
        yield _Line(number, text, before, row, problem, is_over)


def _parse(text: str) -> dict[str, object]:
    """Return the content of a line; empty if it is not a JSON object in UTF-8."""
    try:
        value = json.loads(text.encode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _examine(path: Path) -> Iterator[tuple[LedgerRow | None, str]]:
    """Yield row and problem of each line, either of which may be missing."""
    last: _Line | None = None
    try:
        for last in _walk(path):
            yield last.row, f"{path}, line {last.number}: {last.problem}" if last.problem else ""
    except OSError as error:
        yield None, f"{path}: cannot be read: {error.strerror}"
        return
    if last is None:
        yield None, f"{path}: is empty"
    elif last.row is not None and not last.problem and "attempt" in last.row:
        yield None, f"{path}, line {last.number}: is not the last line that was written: its end is missing"


def read_rows(path: Path) -> Iterator[LedgerRow]:
    """Yield the rows of all attempts; those of earlier versions have no key ``attempt``.

    Raises:
        StoreError: the file cannot be read, or a line is damaged or missing; the message names file and line.
    """
    for row, problem in _examine(path):
        if problem:
            raise StoreError(problem, REMEDY)
        if row is not None:
            yield row


def intact_rows(path: Path) -> Iterator[LedgerRow]:
    """Yield the rows that are not damaged; readers of the report name the damage."""
    yield from (row for row, problem in _examine(path) if row is not None and not problem)


def check_ledger(path: Path) -> Iterator[str]:
    """Yield one line per defect of a ledger: a line that was changed, removed or moved, or a lost end."""
    yield from (problem for _, problem in _examine(path) if problem)
