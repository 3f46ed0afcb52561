"""Compile through JAX's persistent cache and count its misses."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax import monitoring
from jax._src import compilation_cache

from bayesmesh.running.ledger import Ledger
from bayesmesh.sampling.audit import count_equations
from bayesmesh.sampling.program import PROGRAMS, Program
from bayesmesh.store.program_cache import ProgramCache


def use_cache(results: str) -> None:
    """Store compiled programs under ``results/.cache/xla``, accessible only to the owner, because they are machine code.

    Only entries that were written for their key are read (`ProgramCache`).
    """
    folder = Path(results).resolve() / ".cache" / "xla"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # XLA would keep its choices of GPU kernels in files beside them, which nothing checks.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # JAX has no public way to give it another cache than plain files.
    compilation_cache.reset_cache()
    compilation_cache._cache = ProgramCache(folder)  # type: ignore[assignment]  # has the methods of its interface
    compilation_cache._cache_initialized = True


@contextlib.contextmanager
def count_misses() -> Iterator[list[str]]:
    """Yield a list that gets an entry for every program that the persistent cache does not hold."""
    misses: list[str] = []

    def listen(event: str, **_: str | int) -> None:
        if event == "/jax/compilation_cache/cache_misses":
            misses.append(event)

    monitoring.register_event_listener(listen)
    try:
        yield misses
    finally:
        monitoring.unregister_event_listener(listen)


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
        with count_misses() as misses:
            compiled = lowered.compile()
        times.append(time.perf_counter())
        trace, lower, compile_ = (b - a for a, b in itertools.pairwise(times))
        is_warm = not misses
        found[name] = Compilation(compiled, count_equations(traced.jaxpr), trace, lower, compile_, is_warm)
        ledger.add("trace", trace, detail=name)
        ledger.add("lower", lower, detail=name)
        ledger.add("compile", compile_, detail=f"{name}, {'warm' if is_warm else 'cold'}")
    return found
