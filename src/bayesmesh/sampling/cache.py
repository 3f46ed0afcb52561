"""JAX's persistent compilation cache, and a count of what it had to compile anew."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import jax
from jax import monitoring

__all__ = ["CacheCounter", "use_cache"]


def use_cache(results: str) -> None:
    """Keep compiled programs under ``results/.cache/xla``, readable by their owner alone: they are machine code."""
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
