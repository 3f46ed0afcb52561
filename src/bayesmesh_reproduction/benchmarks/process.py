"""Run a contender in a process: requests with a time limit and a memory limit, once per platform of JAX."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from bayesmesh_reproduction.benchmarks.worker import Answer, memory_mib

_log = logging.getLogger("bayesmesh")

PEERS = "BAYESMESH_PEERS"
"""Environment variable: the Python of the other samplers' environment; by default that of ``.venv-peers``."""

ON_CPU = {"cpu": "cpu"}
"""Only the CPU, for `on_platforms`."""

ON = " on "
"""Separates the name of a contender from a platform other than the CPU."""

_ROOT = Path(__file__).resolve().parents[2]
_CHECK_S = 0.1
"""Interval of memory checks while waiting for an answer, in seconds."""


class Contender(NamedTuple):
    """A measured implementation, and how to start it.

    Attributes:
        name: name in tables.
        work: ``MODULE:NAME``, a factory for `bayesmesh_reproduction.benchmarks.worker`.
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

    def __init__(self, status: str, message: str, peak_mib: float = math.nan) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.peak_mib = status, message, peak_mib


class Process:
    """The running process of a contender.

    Args:
        contender: the contender.
        memory_limit_mib: resident memory at which it is killed, in MiB; no limit if None. Only Linux reports memory.
    """

    def __init__(self, contender: Contender, memory_limit_mib: float | None = None) -> None:
        self._memory_limit = memory_limit_mib or math.inf
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        worker = f"{__package__}.worker"
        self._process = subprocess.Popen(
            [contender.python, "-m", worker, contender.work, json.dumps(contender.options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": path, **contender.variables},
            # A separate process group, so that its child processes end with it.
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._buffer = b""

    def ask(self, request: Mapping[str, object], limit_s: float) -> Answer:
        """Return the answer to a request.

        Raises:
            Ended: the process has ended without an answer.
        """
        # The end of its output reveals a process that has ended.
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        until = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0:
                self._end("time limit", f"{request['do']}: more than {limit_s:g} s")
            if (used := memory_mib("VmRSS", self._process.pid)) > self._memory_limit:
                self._end("memory", f"{request['do']}: {used:,.0f} MiB, more than {self._memory_limit:,.0f}")
            if self._selector.select(min(left, _CHECK_S)):
                chunk = os.read(self._answers, 1 << 16)
                if not chunk:
                    self._explain_end(str(request["do"]))
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        self._stderr.close()
        # Ignore requests that could not be written to an ended process.
        with suppress(BrokenPipeError), self._process:
            pass

    def _end(self, status: str, message: str) -> NoReturn:
        peak = memory_mib("VmHWM", self._process.pid)
        self.close()
        raise Ended(status, message, peak)

    def _explain_end(self, doing: str) -> NoReturn:
        """Raise with the reason why the process ended: its last line of output, or the signal."""
        code = self._process.wait()
        self._stderr.seek(0)
        lines = [line.strip() for line in self._stderr.read().decode(errors="replace").splitlines() if line.strip()]
        if code == -signal.SIGKILL:
            self._end("memory", f"{doing}: killed by the system, as it does when memory runs out")
        # Libraries may add notes after the line that names the exception.
        named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
        last = (named or lines or [f"ended with exit code {code}"])[-1]
        self._end("failed", f"{doing}: {last[:300]}")


def ask_once(contender: Contender, case: Mapping[str, object], limit_s: float = 120.0) -> dict[str, Any]:
    """Return the facts of one preparation, for values that are evaluated but not timed.

    Raises:
        Ended: the process ended without an answer.
    """
    with closing(Process(contender)) as process:
        return process.ask({"do": "prepare", "case": dict(case)}, limit_s)["facts"]


class Platforms:
    """A contender that reports the platforms of JAX; it is evaluated, not timed."""

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Return platform -> its name in ``JAX_PLATFORMS``."""
        import jax

        device = jax.devices()[0]
        name: str = device.platform
        if name == "gpu":
            name = "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
        return {"platforms": {"cpu": "cpu", device.platform: name}}


def list_platforms() -> dict[str, str]:
    """Return platform (cpu, gpu, tpu) -> its name in `JAX_PLATFORMS`, from a separate process; always with the CPU."""
    found: dict[str, str] = ask_once(Contender("platforms", f"{__name__}:Platforms"), {})["platforms"]
    return found


def peers_python(benchmark: str) -> str | None:
    """Return the Python of the other samplers' environment, or None, with a warning, if it does not exist."""
    path = Path(os.environ.get(PEERS, ".venv-peers/bin/python")).absolute()
    if path.exists():
        return str(path)
    _log.warning("benchmark %s: %s does not exist; create it with tools/bootstrap.sh peers", benchmark, path)
    return None


def on_platforms(contenders: Sequence[Contender], platforms: Mapping[str, str]) -> list[Contender]:
    """Return contenders on JAX once per platform: on the CPU under their own names, else as ``NAME on gpu``.

    Args:
        contenders: contenders on JAX.
        platforms: result of `list_platforms`.
    """
    found: list[Contender] = []
    for name, variable in platforms.items():
        suffix, variables = "" if name == "cpu" else f"{ON}{name}", {"JAX_PLATFORMS": variable}
        found += [c._replace(name=c.name + suffix, variables={**c.variables, **variables}) for c in contenders]
    return found
