"""Serve one contender in its own process: one JSON object per request and per answer, until the process is killed.

``python -m bayesmesh_reproduction.benchmarks.worker MODULE:NAME OPTIONS`` calls ``NAME(**OPTIONS)`` for every case. The
result has two methods:

- ``prepare(case) -> facts``: build and compile what a case needs, and warm up. Facts are plain values, such as
  ``{"compile_s": 0.3}``.
- ``run(repeat) -> facts``: do the work once, and return when it is done (`jax.block_until_ready`). The worker times the
  call; a contender that times itself returns ``{"seconds": ...}``.

A contender that is only evaluated (`ask_once`) needs no ``run``. A contender that fails ends its process: the traceback
goes to stderr and the harness sees the end of the stream. Only the standard library is imported here, so that
contenders run in other environments.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import math
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

_PACKAGES = ("bayesmesh", "jax", "jaxlib", "tensorflow_probability", "numpy", "pymc", "pytensor", "numba", "numpyro",
             "nutpie", "blackjax")  # fmt: skip
_PR_SET_PDEATHSIG = 1
_REFERENCES = Path("/proc/self/clear_refs")


class Answer(TypedDict):
    """The answer to a request; `versions` after a preparation, `seconds` after a run."""

    facts: dict[str, object]
    peak_mib: float
    versions: NotRequired[str]
    seconds: NotRequired[float]


def version_line(modules: Container[str] = _PACKAGES) -> str:
    """Return the versions of the measured software, such as ``python 3.12.1, bayesmesh 0.2, jax 0.12.0``.

    Args:
        modules: imported modules, all by default; packages not among them or not installed are left out.
    """
    found = [f"python {platform.python_version()}"]
    for module in _PACKAGES:
        distribution = {"tensorflow_probability": "tfp-nightly"}.get(module, module)
        if module in modules:
            with suppress(PackageNotFoundError):
                found.append(f"{distribution} {version(distribution)}")
    return ", ".join(found)


def memory_mib(field: str, process: int | str = "self") -> float:
    """Return memory of a process in MiB, ``VmRSS`` now or ``VmHWM`` at its peak; NaN if the system does not tell."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return math.nan
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith(field)), math.nan)


def peak_mib() -> float:
    """Return the peak resident memory of this process since `_forget_peak`, in MiB.

    Uses Linux's own mark, because the value of `getrusage` starts with that of the parent process.
    """
    if not math.isnan(peak := memory_mib("VmHWM")):
        return peak
    # Elsewhere the peak since the start of the process; macOS counts bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _forget_peak() -> None:
    """Release free memory and reset the peak to the resident memory, if the system can."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    if _REFERENCES.exists():
        _REFERENCES.write_text("5", encoding="ascii")


def timed[T](work: Callable[[], T]) -> tuple[T, float]:
    """Return what a function returns, and its seconds."""
    begin = time.perf_counter()
    found = work()
    return found, time.perf_counter() - begin


def serve(factory: Callable[[], Any], requests: Iterable[str]) -> Iterator[Answer]:
    """Yield the answer to each request.

    >>> class Nothing:
    ...     def prepare(self, case): return {"size": case["n"]}
    ...     def run(self, repeat): return {"seconds": 0.5}
    >>> answers = list(serve(Nothing, ['{"do": "prepare", "case": {"n": 3}}', '{"do": "run", "repeat": 0}']))
    >>> answers[0]["facts"], answers[1]["seconds"]
    ({'size': 3}, 0.5)
    """
    work: Any = None
    for line in requests:
        request = json.loads(line)
        if request["do"] == "prepare":
            work = None  # Free the objects of the previous case before the next begins.
            _forget_peak()
            work = factory()
            facts = dict(work.prepare(request["case"]))
            yield {"facts": facts, "peak_mib": peak_mib(), "versions": version_line(sys.modules)}
            continue
        assert work is not None, "prepare comes first"
        facts, seconds = timed(functools.partial(work.run, request["repeat"]))
        facts = dict(facts)
        yield {"seconds": facts.pop("seconds", seconds), "facts": facts, "peak_mib": peak_mib()}


def main(work: str, options: str) -> None:
    """Serve the contender ``MODULE:NAME`` with its keyword arguments as JSON."""
    # Reserve stdout for answers; what a contender prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if sys.platform == "linux":
        # Die with the parent, also during a run: an orphan would disturb the next measurement.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    module, _, name = work.partition(":")
    factory = functools.partial(getattr(importlib.import_module(module), name), **json.loads(options))
    for answer in serve(factory, sys.stdin):
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
