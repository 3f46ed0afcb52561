"""Compile through JAX's persistent cache and count its misses."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

import jax
from jax import monitoring

from bayesmesh.running.ledger import Ledger
from bayesmesh.sampling.audit import count_equations
from bayesmesh.sampling.program import PROGRAMS, Program

__all__ = ["CacheCounter", "Compilation", "compile_programs", "use_cache"]


def use_cache(results: str) -> None:
    """Store compiled programs under ``results/.cache/xla``, accessible only to the owner, because they are machine code."""
    folder = Path(results).resolve() / ".cache" / "xla"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class CacheCounter:
    """Counts cache hits and misses while it is open."""

    _open: ClassVar[list[CacheCounter]] = []
    _is_listening: ClassVar[bool] = False

    def __init__(self) -> None:
        self.hits, self.misses = 0, 0

    def __enter__(self) -> CacheCounter:
        if not CacheCounter._is_listening:
            monitoring.register_event_listener(CacheCounter._listen)
            CacheCounter._is_listening = True
        CacheCounter._open.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        CacheCounter._open.remove(self)

    @staticmethod
    def _listen(event: str, **_: Any) -> None:
        for counter in CacheCounter._open:
            counter.hits += event == "/jax/compilation_cache/cache_hits"
            counter.misses += event == "/jax/compilation_cache/cache_misses"


class Compilation(NamedTuple):
    """A compiled program and its compile times.

    Attributes:
        compiled: the executable.
        num_equations: of its jaxpr, a loop's body counted once.
        trace_seconds, lower_seconds, compile_seconds: wall time.
        is_warm: whether the persistent cache held it.
    """

    compiled: Any
    num_equations: int
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    is_warm: bool


def compile_programs(program: Program, ledger: Ledger, names: Sequence[str] = PROGRAMS) -> dict[str, Compilation]:
    """Trace, lower and compile the programs of a chain group, or take them from the persistent cache.

    Args:
        program: programs of the chain group.
        ledger: receives the times.
        names: names from `PROGRAMS`.

    Returns:
        name -> compilation; the ledger gets a row for each of the three steps.
    """
    found = {}
    for name in names:
        times = [time.perf_counter()]
        traced = program.trace(name)
        times.append(time.perf_counter())
        lowered = traced.lower()
        times.append(time.perf_counter())
        with CacheCounter() as cache:
            compiled = lowered.compile()
        times.append(time.perf_counter())
        trace, lower, compile_ = (b - a for a, b in itertools.pairwise(times))
        is_warm = cache.misses == 0
        found[name] = Compilation(compiled, count_equations(traced.jaxpr), trace, lower, compile_, is_warm)
        ledger.add("trace", trace, detail=name)
        ledger.add("lower", lower, detail=name)
        ledger.add("compile", compile_, detail=f"{name}, {'warm' if is_warm else 'cold'}")
    return found
