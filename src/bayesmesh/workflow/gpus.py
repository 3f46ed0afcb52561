"""Assign the GPUs of one machine to jobs that run side by side, so that no two jobs share a GPU.

A job locks the device files of its GPUs and shows JAX only those. The operating system releases the lock when the
process ends, however it ends, and no lock file remains.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import itertools
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bayesmesh.errors import DeviceError
from bayesmesh.store.slurm_job import job_id, num_tasks

WAIT_SECONDS = 0.5

_log = logging.getLogger("bayesmesh")


def visible_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> list[tuple[str, Path]]:
    """Return (CUDA's number, device file) of every visible GPU.

    CUDA numbers the GPUs that it can open, whatever their files are called: a scheduler may deny access to the others.
    `CUDA_VISIBLE_DEVICES` may exclude some.
    """
    readable = [path for path in devices.glob("nvidia[0-9]*") if os.access(path, os.R_OK)]
    files = sorted(readable, key=lambda path: int(path.name.removeprefix("nvidia")))
    numbered = [(str(number), path) for number, path in enumerate(files)]
    if (visible := environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return numbered
    wanted = [name.strip() for name in visible.split(",")]
    return [(number, path) for number, path in numbered if number in wanted]


def tpu_chips(devices: Path = Path("/dev")) -> list[Path]:
    """Return the device files of a host's TPU chips."""
    return sorted([*devices.glob("accel[0-9]*"), *devices.glob("vfio/[0-9]*")])


def has_accelerator(environ: Mapping[str, str], devices: Path = Path("/dev")) -> bool:
    """Return whether JAX should find a GPU or a TPU, judging by device files, variables and installed packages."""
    found = {"jax_plugins": visible_gpus(environ, devices), "libtpu": tpu_chips(devices)}
    is_there = any(files and importlib.util.find_spec(package) for package, files in found.items())
    return is_there and environ.get("JAX_PLATFORMS", "").strip() != "cpu"


@contextlib.contextmanager
def hold_gpus(count: int, devices: Path = Path("/dev")) -> Iterator[None]:
    """Lock `count` GPUs while the block runs, and hide the others; waits until they are free.

    Does nothing if `count` is 0 or if a scheduler has assigned the GPUs: then the job sees fewer GPUs than it requests
    over all its nodes, or has several tasks. A job that sees enough GPUs may share an allocation with other jobs.

    Args:
        count: number of GPUs to lock.
        devices: folder of the device files.

    Raises:
        DeviceError: fewer GPUs exist, and this process is not in a scheduler's job.
    """
    visible = visible_gpus(os.environ, devices)
    in_job = bool(job_id(os.environ))
    if count == 0 or (in_job and (count > len(visible) or num_tasks(os.environ) > 1)):
        yield
        return
    if count > len(visible):
        raise DeviceError(
            f"--gpus {count}: {len(visible)} GPUs are visible here",
            "run without the profile to use the CPU; `bayesmesh doctor` says why a GPU is missing",
        )
    with contextlib.ExitStack() as held:
        names = _lock_gpus(count, visible, held)
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names)
        _log.info("GPU %s", ", ".join(names))
        try:
            yield
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if before is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = before


def _lock_gpus(count: int, visible: list[tuple[str, Path]], held: contextlib.ExitStack) -> list[str]:
    """Lock `count` GPUs, all or none: two jobs that each hold a part would wait for each other forever."""
    has_logged = False
    while True:
        with contextlib.ExitStack() as attempt:
            locked = (name for name, path in visible if _try_lock(path, attempt))
            names = list(itertools.islice(locked, count))
            if len(names) == count:
                held.push(attempt.pop_all())
                return names
        if not has_logged:
            _log.info("waiting for %d of %d GPUs that other jobs use", count, len(visible))
            has_logged = True
        time.sleep(WAIT_SECONDS)


def _try_lock(path: Path, stack: contextlib.ExitStack) -> bool:
    handle = path.open("rb", buffering=0)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return False
    stack.callback(handle.close)
    return True
