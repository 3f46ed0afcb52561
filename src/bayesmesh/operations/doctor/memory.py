"""doctor: memory that a job would have here, limited by the machine, the Slurm job and control groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.errors import ConfigError
from bayesmesh.operations.doctor.finding import WARNS, Finding
from bayesmesh.running.slurm.variables import job_memory

__all__ = ["check"]

GROUP = "machine"
LEAST_GIB = 3.0
"""Memory of one job with JAX and a small experiment."""

_V1, _V2 = "memory.limit_in_bytes", "memory.max"
"""Files with the limit of a control group, for both versions; `max` means no limit."""


def check(environ: Mapping[str, str], proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Finding:
    """Report the smallest of the free memory and the limits by a scheduler or a container.

    Args:
        environ: environment variables.
        proc: the proc file system.
        groups: the file system of control groups.
    """
    try:
        job = job_memory(environ)
    except ConfigError as error:
        return Finding(GROUP, "memory", error.message, WARNS, error.remedy)
    limits = {
        "": _available(proc / "meminfo"),
        ", all of this job": job,
        ", all of its control group": _of_group(proc, groups),
    }
    what, least = min(((what, limit) for what, limit in limits.items() if limit is not None), key=lambda pair: pair[1])
    seen = f"{least / 2**30:.1f} GiB available{what}"
    if least < LEAST_GIB * 2**30:
        remedy = f"a job needs {LEAST_GIB:.0f} GiB: request more, or stop other programs on this machine"
        return Finding(GROUP, "memory", seen, WARNS, remedy)
    return Finding(GROUP, "memory", seen)


def _available(meminfo: Path) -> int:
    """Return the bytes available to a new process; half of all memory if the system does not report them."""
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _of_group(proc: Path, groups: Path) -> int | None:
    """Return the smallest limit in bytes of this process's control group and its parents; None without a limit."""
    limits: list[int] = []
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (groups / "memory", _V1) if controllers else (groups, _V2)
        # In a container the path may be that of the host, where only the root exists.
        folder = root / path.lstrip("/")
        for one in (folder, *folder.parents):
            if one.is_relative_to(root) and (text := _read(one / name).strip()).isdecimal():
                limits.append(int(text))
    return min(limits, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
