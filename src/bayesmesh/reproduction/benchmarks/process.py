"""Run a contender in a process: requests with a time limit and a memory limit."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.reproduction.benchmarks.worker import Answer

__all__ = ["Contender", "Ended", "Process", "ask_once"]

_ROOT = Path(__file__).resolve().parents[3]
_LOOK_SECONDS = 0.1
"""Interval of memory checks while waiting for an answer, in seconds."""


class Contender(NamedTuple):
    """A measured implementation, and how to start it.

    Attributes:
        name: name in tables.
        work: ``MODULE:NAME``, a factory for `bayesmesh.reproduction.benchmarks.worker`.
        options: keyword arguments of the factory; plain values.
        python: its interpreter, possibly of another environment.
        variables: additional environment variables.
    """

    name: str
    work: str
    options: Mapping[str, Any] = {}
    python: str = sys.executable
    variables: Mapping[str, str] = {}


class Ended(Exception):
    """The process no longer answers.

    Attributes:
        status: ``time limit``, ``memory`` or ``failed``.
        message: the reason.
        peak_mib: its peak resident memory if it was killed here and the system reports it; else NaN.
    """

    def __init__(self, status: str, message: str, peak_mib: float = float("nan")) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.peak_mib = status, message, peak_mib


class Process:
    """The running process of a contender.

    Args:
        contender: the contender.
        memory_limit_mib: resident memory at which it is killed, in MiB; no limit if None. Only Linux reports memory.
    """

    def __init__(self, contender: Contender, memory_limit_mib: float | None = None) -> None:
        self._memory_limit = memory_limit_mib
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [contender.python, "-m", "bayesmesh.reproduction.benchmarks.worker", contender.work, json.dumps(contender.options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            env={**os.environ, "PYTHONPATH": path, **contender.variables},
            # A separate process group, so that its child processes end with it.
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._answers = self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._buffer = b""

    def ask(self, request: Mapping[str, object], limit_s: float) -> Answer:
        """Return the answer to a request.

        Raises:
            Ended: the process has ended without an answer.
        """
        assert self._process.stdin is not None
        # The end of its output reveals a process that has ended.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        until = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0:
                self._end("time limit", f"{request['do']}: more than {limit_s:g} s")
            if self._memory_limit is not None and (used := self._memory_mib("VmRSS")) > self._memory_limit:
                self._end("memory", f"{request['do']}: {used:,.0f} MiB, more than {self._memory_limit:,.0f}")
            if self._selector.select(min(left, _LOOK_SECONDS)):
                chunk = os.read(self._answers, 1 << 16)
                if not chunk:
                    self._explain_end(str(request["do"]))
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            # Ignore data that could not be written to an ended process.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def _memory_mib(self, what: str) -> float:
        """Return memory of the process, ``VmRSS`` now or ``VmHWM`` at its peak; NaN if unavailable."""
        try:
            lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return float("nan")
        return next((float(line.split()[1]) / 1024 for line in lines if line.startswith(what)), float("nan"))

    def _end(self, status: str, message: str) -> None:
        peak = self._memory_mib("VmHWM")
        self.close()
        raise Ended(status, message, peak)

    def _explain_end(self, doing: str) -> None:
        """Return why the process ended: its last line of output, or the signal."""
        code = self._process.wait()
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        if code == -signal.SIGKILL:
            self._end("memory", f"{doing}: killed by the system, as it does when memory runs out")
        # Libraries may add notes after the line that names the exception.
        named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
        last = (named or lines or [f"ended with exit code {code}"])[-1]
        self._end("failed", f"{doing}: {last[:300]}")


def ask_once(contender: Contender, case: Mapping[str, object], limit_s: float) -> dict[str, Any]:
    """Return the facts of one preparation, for values that are evaluated but not timed.

    Raises:
        Ended: the process ended without an answer.
    """
    with Process(contender) as process:
        facts = process.ask({"do": "prepare", "case": dict(case)}, limit_s)["facts"]
    return facts
