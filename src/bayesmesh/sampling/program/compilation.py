"""Trace, lower and compile the programs of a chain group, side by side, with JAX's persistent compilation cache."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax import monitoring
from jax.experimental.compilation_cache import compilation_cache

from bayesmesh.sampling.program.audit import count_equations
from bayesmesh.sampling.program.chain_group import PROGRAMS, Program
from bayesmesh.store.ledger import Ledger

QUICK_EQUATIONS = 6_000
"""Most equations of a program that compiles within a few seconds."""


class Compilation(NamedTuple):
    """A compiled program and its compile times.

    Attributes:
        compiled: the executable.
        num_equations: equations of its jaxpr; the body of a loop counts once.
        trace_seconds, lower_seconds, compile_seconds: wall time.
        is_warm: whether the persistent cache held it.
    """

    compiled: Any
    num_equations: int
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    is_warm: bool


def _nothing() -> None:
    pass


def compile_programs(
    program: Program,
    ledger: Ledger,
    names: Sequence[str] = PROGRAMS,
    later: Iterable[jax.stages.Lowered] = (),
    meanwhile: Callable[[], None] = _nothing,
    others: Mapping[str, Callable[[], jax.stages.Traced]] | None = None,
) -> dict[str, Compilation]:
    """Trace, lower and compile the programs of a chain group side by side, or take them from the persistent cache.

    Args:
        program: programs of the chain group.
        ledger: receives the times.
        names: names from `PROGRAMS`.
        later: programs of later stages, lowered one by one while the others compile, and left in the cache. They are made
            only if the cache lacks a program of the group, because lowering them takes longer than loading.
        meanwhile: called once programs are compiling, or before that if they may take more than a few seconds, because an
            error in it is raised only after they have compiled.
        others: name -> function that traces a further program.

    Returns:
        name -> compilation; the ledger gets a row for each of the three steps.
    """
    waiting = {}
    # In this order: `initialise`, already traced for the shapes of the state, compiles while the segment is traced.
    traces = {name: functools.partial(program.trace, name) for name in names} | dict(others or {})
    # XLA compiles without the GIL. Several processes compile in the same order, because compilation may synchronise them.
    num_threads = len(traces) + 1 if jax.process_count() == 1 else 1
    with ThreadPoolExecutor(num_threads) as pool, count_misses(of_all_threads=True) as misses:
        for name, trace_program in traces.items():
            times = [time.perf_counter()]
            traced = trace_program()
            times.append(time.perf_counter())
            lowered, equations = traced.lower(), count_equations(traced.jaxpr)
            if equations > QUICK_EQUATIONS:
                meanwhile()
                meanwhile = _nothing
            options = program.compiler_options(name) if name in names else None
            times.append(time.perf_counter())
            trace, lower = (b - a for a, b in itertools.pairwise(times))
            waiting[name] = equations, trace, lower, pool.submit(_compile, lowered, options)
        meanwhile()
        # A miss is known once its program is compiled.
        wait([compilation for *_, compilation in waiting.values()], return_when=FIRST_COMPLETED)
        compiling = [pool.submit(_compile, lowered) for lowered in later] if misses else []
    for compilation in compiling:
        compilation.result()
    found = {}
    for name, (num_equations, trace, lower, compilation) in waiting.items():
        compiled, compile_, is_warm = compilation.result()
        found[name] = Compilation(compiled, num_equations, trace, lower, compile_, is_warm)
        ledger.add("trace", trace, detail=name)
        ledger.add("lower", lower, detail=name)
        ledger.add("compile", compile_, detail=f"{name}, {'warm' if is_warm else 'cold'}")
    return found


def _compile(
    lowered: jax.stages.Lowered, options: dict[str, int] | None = None
) -> tuple[jax.stages.Compiled, float, bool]:
    """Return the program, the seconds it took, and whether the persistent cache held it."""
    start = time.perf_counter()
    with count_misses() as misses:
        compiled = lowered.compile(options)
    return compiled, time.perf_counter() - start, not misses


def use_cache(results: Path) -> None:
    """Store compiled programs under ``results/.cache/xla``, accessible only to the owner, because they are machine code.

    JAX compiles a program again, with a warning, if its entry is damaged: entries are compressed with a checksum.
    """
    folder = results.resolve() / ".cache" / "xla"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_raise_persistent_cache_errors", False)
    # XLA would store its choices of GPU kernels in unchecked files beside them.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # A folder that is already in use would stay.
    compilation_cache.reset_cache()


@contextlib.contextmanager
def count_misses(*, of_all_threads: bool = False) -> Iterator[list[str]]:
    """Yield a list that gets an entry for every program of this thread, or of all threads, that the persistent cache lacks."""
    misses, thread = list[str](), threading.get_ident()

    def listen(event: str, **_: str | int) -> None:
        if event == "/jax/compilation_cache/cache_misses" and (of_all_threads or threading.get_ident() == thread):
            misses.append(event)

    monitoring.register_event_listener(listen)
    try:
        yield misses
    finally:
        monitoring.unregister_event_listener(listen)
