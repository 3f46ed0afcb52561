"""Use JAX's persistent compilation cache, and count its misses."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
from jax import monitoring
from jax.experimental.compilation_cache import compilation_cache


def use_cache(results: str) -> None:
    """Store compiled programs under ``results/.cache/xla``, accessible only to the owner, because they are machine code.

    JAX compiles a program again, with a warning, if its entry is damaged: entries are compressed with a checksum.
    """
    folder = Path(results).resolve() / ".cache" / "xla"
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
