"""Use JAX's persistent compilation cache, count its misses, and load programs from it by their keys."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from jax import monitoring
from jax._src import compilation_cache, distributed
from jax._src.lib import xla_client

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


@contextlib.contextmanager
def note_key() -> Iterator[list[str]]:
    """Yield a list that gets, at the end, the key with which this thread asked the persistent cache for a program."""
    cache, keys = compilation_cache._cache, list[str]()
    if not isinstance(cache, ProgramCache):
        yield keys
        return
    cache.forget_asked()
    yield keys
    if cache.asked is not None:
        keys.append(cache.asked)


def load_executable(key: str, devices: Sequence[jax.Device]) -> Any:
    """Return an executable from the persistent cache for the devices of a mesh, or None if it is missing or does not fit them.

    Args:
        key: its key, from `note_key`.
        devices: devices of this process, in the order of the mesh.
    """
    cache = compilation_cache._cache
    content = cache.find(key) if isinstance(cache, ProgramCache) else None
    if content is None:
        return None
    whole = compilation_cache.decompress_executable(content)
    serialized, _ = compilation_cache.extract_executable_and_time(whole)
    try:
        return devices[0].client.deserialize_executable(
            serialized, executable_devices=xla_client.DeviceList(tuple(devices))
        )
    except jax.errors.JaxRuntimeError as error:
        _log.warning("a recorded program cannot be loaded, and is compiled anew: %s", error)
        return None
