"""Show the progress of long work: lines in the log and, on a terminal, a bar."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

LOG_EVERY_SECONDS = 30.0

FILE, WRITE_EVERY_SECONDS = "BAYESMESH_PROGRESS", 0.2
"""Variable with the path of a file that always holds the newest state, for a process that shows it; how often it is written."""


class State(NamedTuple):
    """Units of work done, and in total."""

    label: str
    done: int
    total: int
    unit: str


def read_state(path: Path) -> State | None:
    """Return the state in a file; None before there is one."""
    try:
        label, done, total, unit = path.read_text(encoding="utf-8").split("\n")
        return State(label, int(done), int(total), unit)
    except (OSError, ValueError):
        # Or while it is being written.
        return None


_log = logging.getLogger("bayesmesh")


class Progress:
    """Count units of work towards a total; a context manager.

    Args:
        label: name of the work.
        total: units of work in total.
        done: units finished earlier.
        unit: name of a unit.
        is_shown: False if another process shows the same progress.
    """

    def __init__(self, label: str, total: int, done: int = 0, unit: str = "draw", *, is_shown: bool = True) -> None:
        self.label, self.total, self.done, self.unit = label, total, done, unit
        self._first, self._start, self._last = done, time.monotonic(), time.monotonic()
        self._bar: Any = None
        self._is_shown = is_shown
        self._file, self._written = os.environ.get(FILE) if is_shown else None, 0.0
        if is_shown and sys.stderr.isatty():
            self._bar = tqdm(total=total, initial=done, desc=label, unit=unit, dynamic_ncols=True, leave=True)

    def advance(self, count: int, **facts: str) -> None:
        """Add finished units and show `facts` with them."""
        self.done += count
        if self._bar is not None:
            self._bar.set_postfix(facts, refresh=False)
            self._bar.update(count)
        now = time.monotonic()
        if self._file is not None and (now - self._written >= WRITE_EVERY_SECONDS or self.done >= self.total):
            self._written = now
            state = State(self.label, self.done, self.total, self.unit)
            Path(self._file).write_text("\n".join(map(str, state)), encoding="utf-8")
        if self._is_shown and (now - self._last >= LOG_EVERY_SECONDS or self.done >= self.total):
            self._last = now
            rate = (self.done - self._first) / max(now - self._start, 1e-9)
            remaining = (self.total - self.done) / rate if rate > 0 else float("inf")
            line = f"{self.label}: {self.done} of {self.total} {self.unit}s, {rate:.3g}/s, {remaining:.0f} s to go"
            # Otherwise the line would be written into the bar.
            with nullcontext() if self._bar is None else self._bar.external_write_mode(file=sys.stderr):
                _log.info("%s", ", ".join([line, *(f"{key} {value}" for key, value in facts.items())]))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
