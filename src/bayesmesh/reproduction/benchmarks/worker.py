"""The process of one contender: answers requests, one JSON object per line, until it is ended or killed.

``python -m bayesmesh.reproduction.benchmarks.worker MODULE:NAME [OPTIONS]`` calls ``NAME(**OPTIONS)`` for every case; the result
has

- ``prepare(case) -> facts``: build and compile what a case needs, and warm up; facts are plain values, such as
  ``{"compile_s": 0.3}``;
- ``run(repeat) -> facts``: do the work once, and return when it is done (`jax.block_until_ready`). It is timed here; a
  contender that times itself says ``{"seconds": ...}``.

A contender that fails ends its process: the traceback goes to stderr and the harness sees the end of the stream. What
a contender prints goes to stderr. Only the standard library is imported here, so that contenders run in other
environments.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NotRequired, Protocol, TextIO, TypedDict

from bayesmesh.reproduction.benchmarks.versions import version_line

__all__ = ["Answer", "Work", "peak_mib", "serve"]

_PR_SET_PDEATHSIG = 1
_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Answer(TypedDict):
    """The answer to a request; `versions` of a preparation, `seconds` of a run."""

    ok: bool
    facts: dict[str, object]
    peak_mib: float
    versions: NotRequired[str]
    seconds: NotRequired[float]


class Work[C](Protocol):
    """Interface of the object that a contender's factory returns."""

    def prepare(self, case: C) -> Mapping[str, object]:
        """Get ready for a case, outside of the clock."""

    def run(self, repeat: int) -> Mapping[str, object]:
        """Do the work of the prepared case."""


def peak_mib() -> float:
    """Return the peak resident memory of this process since `_forget_peak`, in MiB.

    Uses Linux's own mark, because the value of `getrusage` starts with that of the parent process.
    """
    if _STATUS.exists():
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024
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


def serve[C](factory: Callable[[], Work[C]], requests: Iterable[str]) -> Iterator[Answer]:
    """Yield the answer to each request.

    >>> class Nothing:
    ...     def prepare(self, case): return {"size": case["n"]}
    ...     def run(self, repeat): return {"seconds": 0.5}
    >>> answers = list(serve(Nothing, ['{"do": "prepare", "case": {"n": 3}}', '{"do": "run", "repeat": 0}']))
    >>> answers[0]["facts"], answers[1]["seconds"]
    ({'size': 3}, 0.5)
    """
    work: Work[C] | None = None
    for line in requests:
        request = json.loads(line)
        if request["do"] == "exit":
            return
        if request["do"] == "prepare":
            work = None  # Free the objects of the previous case before the next begins.
            _forget_peak()
            work = factory()
            facts = dict(work.prepare(request["case"]))
            yield {"ok": True, "facts": facts, "peak_mib": peak_mib(), "versions": version_line(sys.modules)}
            continue
        assert work is not None, "prepare comes first"
        begin = time.perf_counter()
        facts = dict(work.run(request["repeat"]))
        seconds = time.perf_counter() - begin
        if isinstance(own := facts.pop("seconds", None), float):
            seconds = own
        yield {"ok": True, "seconds": seconds, "facts": facts, "peak_mib": peak_mib()}


def _take_stdout() -> TextIO:
    """Reserve stdout for answers; redirect other output to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _end_with_parent() -> None:
    """Die with the parent process, also during a run, which would disturb the next measurement."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(words: list[str]) -> None:
    """Serve the contender that the command line names."""
    answers = _take_stdout()
    _end_with_parent()
    module, _, name = words[0].partition(":")
    factory = getattr(importlib.import_module(module), name)
    options = json.loads(words[1] if len(words) > 1 else "{}")
    for answer in serve(functools.partial(factory, **options), sys.stdin):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
