"""Describe this machine: the cores that this process may use, and a name for tables of measured times."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path


def usable_cores() -> int:
    """Return the cores that this process may run on; all cores on a system without affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_name() -> str:
    """Return processor, usable cores and memory, such as ``AMD EPYC 7B13, 2 cores, 24 GiB``."""
    cores = usable_cores()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor()}, {cores} core{'s' if cores > 1 else ''}, {memory:.0f} GiB"


@functools.cache
def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8", errors="replace").splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    # ARM and others have no model name; the platform module knows at least the architecture.
    return names[0] if names else platform.processor() or platform.machine()
