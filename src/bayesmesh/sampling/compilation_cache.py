"""Use JAX's persistent compilation cache, count its misses, and load programs from it by their keys."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
from jax import monitoring
from jax._src import compilation_cache, distributed

from bayesmesh.sampling.program_cache import ProgramCache

_log = logging.getLogger("bayesmesh")


def use_cache(results: str) -> None:
    """Store compiled programs under ``results/.cache/xla``, accessible only to the owner, because they are machine code.

    An entry is read only if it was written for its key (`ProgramCache`).
    """
    folder = Path(results).resolve() / ".cache" / "xla"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # XLA would store its choices of GPU kernels in unchecked files beside them.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    # JAX has no public way to replace its cache of plain files.
    compilation_cache.reset_cache()
    cache = ProgramCache(folder, lambda: distributed.global_state.num_processes == 1)
    compilation_cache._cache = cache  # type: ignore[assignment]  # has the methods of the interface
    compilation_cache._cache_initialized = True


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
