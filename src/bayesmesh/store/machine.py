"""Describe this machine without JAX: cores, devices and memory of this process, and a name for tables of times."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import resource
from collections.abc import Iterator
from pathlib import Path


def usable_cores() -> int:
    """Return the cores that this process may run on; all cores on a system without affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_name() -> str:
    """Return processor, usable cores and memory, such as ``AMD EPYC 7B13, 2 cores, 24 GiB``."""
    cores = usable_cores()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor()}, {cores} core{'s' if cores > 1 else ''}, {memory:.0f} GiB"


def count_devices(platform: str, cores: int) -> int:
    """Return the number of devices of a platform on this machine; a CPU core counts as a device.

    Args:
        platform: ``auto``, ``cpu``, ``gpu`` or ``tpu``.
        cores: cores available to the workflow.
    """
    # Linux on Windows (WSL) has one device file for all GPUs.
    gpus = len([*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")])
    tpus = len([*Path("/dev").glob("accel[0-9]*"), *Path("/dev").glob("vfio/[0-9]*")])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = min(gpus, len([v for v in visible.split(",") if v.strip() not in ("", "-1")]))
    if platform == "auto":
        allowed = os.environ.get("JAX_PLATFORMS", "tpu,cuda,cpu")
        has_gpu = gpus and ("cuda" in allowed or "gpu" in allowed)
        platform = "tpu" if tpus and "tpu" in allowed else "gpu" if has_gpu else "cpu"
    forced = re.search(r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return {"gpu": gpus, "tpu": tpus, "cpu": int(forced.group(1)) if forced else cores}[platform]


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still allocate; None where the system does not say.

    This is the least of the memory available on the machine and of that left by the control groups of a container or a
    job, whose file caches count as free.

    Args:
        root: of the file system.
    """
    found = [1024 * n for n in _numbers(root / "proc/meminfo", "MemAvailable")]
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            base = root / "sys/fs/cgroup" / controllers
            inside = base / path.lstrip("/")
            found += [n for folder in (inside, *inside.parents) if folder.is_relative_to(base) for n in _left(folder)]
    return min(found, default=None)


def _left(group: Path) -> list[int]:
    """Return what a control group leaves, for either version of control groups; empty without a limit."""
    for limit, usage, caches in (
        ("memory.max", "memory.current", ("inactive_file", "active_file")),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    ):
        most, used = (next(iter(_lines(group / name)), "") for name in (limit, usage))
        if most.isdecimal() and used.isdecimal():
            cached = sum(n for name in caches for n in _numbers(group / "memory.stat", name))
            return [max(0, int(most) - int(used) + cached)]
    return []


def _numbers(file: Path, name: str) -> list[int]:
    """Return the number of a line such as ``MemAvailable:  123 kB``; empty without one."""
    found = (re.fullmatch(rf"{name}:?\s+(\d+).*", line) for line in _lines(file))
    return [int(match[1]) for match in found if match]


def _lines(file: Path) -> list[str]:
    """Return the lines of a file of the kernel; empty where it does not exist or may not be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


@contextlib.contextmanager
def limited_memory(num_bytes: int | None) -> Iterator[None]:
    """Let allocations within the block fail with a MemoryError beyond some bytes; otherwise the system would kill us.

    Args:
        num_bytes: in addition to what the process has; no limit if None.
    """
    used = _numbers(Path("/proc/self/status"), "VmData")
    if num_bytes is None or not used:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [1024 * used[0] + num_bytes, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@functools.cache
def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8", errors="replace").splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    # ARM and others have no model name; the platform module knows at least the architecture.
    return names[0] if names else platform.processor() or platform.machine()
