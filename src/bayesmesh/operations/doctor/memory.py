"""doctor: memory that a job would have here: of the machine, and of what bounds this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.errors import ConfigError
from bayesmesh.operations.doctor.finding import WARNS, Finding
from bayesmesh.running.slurm.step import whole_number

__all__ = ["check"]

GROUP = "machine"
LEAST_GIB = 3.0
"""Of one job with JAX and a small experiment."""

_V1, _V2 = "memory.limit_in_bytes", "memory.max"
"""Files with the limit of a control group, of either version; `max` where there is none."""


def check(environ: Mapping[str, str], proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Finding:
    """Say what is the least: what the machine has left, or what a scheduler or a container lets this process take.

    Args:
        environ: environment variables.
        proc: where the system tells of itself and of this process.
        groups: where control groups are.
    """
    try:
        job = _of_job(environ)
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
        remedy = f"a job wants {LEAST_GIB:.0f} GiB: ask for more, or end what else runs here"
        return Finding(GROUP, "memory", seen, WARNS, remedy)
    return Finding(GROUP, "memory", seen)


def _available(meminfo: Path) -> int:
    """Bytes that a new process may take; half of all where the system does not say."""
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _of_job(environ: Mapping[str, str]) -> int | None:
    """Bytes that a job of Slurm asked for on this node, whether or not the site enforces it; None outside of one.

    Raises:
        ConfigError: a variable of Slurm is no number.
    """
    if not environ.get("SLURM_JOB_ID"):
        return None
    per_node = whole_number(environ, "SLURM_MEM_PER_NODE", 0)
    per_cpu = whole_number(environ, "SLURM_MEM_PER_CPU", 0) * whole_number(environ, "SLURM_CPUS_ON_NODE", 1)
    # 0 is all of the node.
    return (per_node or per_cpu) * 2**20 or None


def _of_group(proc: Path, groups: Path) -> int | None:
    """Bytes that this process's control group may take, or one that it is in; None where none is bounded."""
    limits: list[int] = []
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (groups / "memory", _V1) if controllers else (groups, _V2)
        # In a container the path may be the host's, of which only the root is there.
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
