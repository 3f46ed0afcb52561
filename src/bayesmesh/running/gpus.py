"""GPUs of one machine for jobs that start side by side: never two on one card.

A job locks the device files of the cards that it takes and shows JAX only those. The lock is the system's, so that it
goes with the process however that ends, and no file is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bayesmesh.errors import DeviceError
from bayesmesh.running.slurm.step import num_tasks

__all__ = ["cards", "chips", "has_accelerator", "hold_cards"]

WAIT_SECONDS = 0.5

_log = logging.getLogger("bayesmesh")


def cards(environ: Mapping[str, str], devices: Path = Path("/dev")) -> list[tuple[str, Path]]:
    """Return (name for CUDA, device file) of every card that is visible.

    CUDA counts the cards that it may open, whatever their files are called: in a job a scheduler may have closed the
    others. `CUDA_VISIBLE_DEVICES` may leave some out.
    """
    there = [path for path in devices.glob("nvidia[0-9]*") if os.access(path, os.R_OK)]
    files = sorted(there, key=lambda path: int(path.name.removeprefix("nvidia")))
    every = [(str(number), path) for number, path in enumerate(files)]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return every
    wanted = [name.strip() for name in visible.split(",")]
    return [(name, path) for name, path in every if name in wanted]


def chips(devices: Path = Path("/dev")) -> list[Path]:
    """Return the device files of a host's TPU chips."""
    return sorted([*devices.glob("accel[0-9]*"), *devices.glob("vfio/[0-9]*")])


def has_accelerator(environ: Mapping[str, str], devices: Path = Path("/dev")) -> bool:
    """Return whether JAX would find a GPU or a TPU here, as far as files, variables and what is installed tell."""
    is_there = (cards(environ, devices) and _is_installed("jax_plugins")) or (
        chips(devices) and _is_installed("libtpu")
    )
    return bool(is_there) and environ.get("JAX_PLATFORMS", "").strip() != "cpu"


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@contextlib.contextmanager
def hold_cards(count: int, devices: Path = Path("/dev")) -> Iterator[None]:
    """Hold so many cards while the block runs, and show only them; waits until they are free.

    Nothing is done for a count of 0, nor where a scheduler has chosen: it shows a job fewer cards than the job wants on
    all its nodes, or has started several tasks. A job that sees enough may be one of several in an allocation.

    Args:
        count: cards wanted.
        devices: folder of the device files.

    Raises:
        DeviceError: there are fewer, and this is not inside a job.
    """
    there = cards(os.environ, devices)
    in_job = "SLURM_JOB_ID" in os.environ
    if count == 0 or (in_job and (count > len(there) or num_tasks(os.environ) > 1)):
        yield
        return
    if count > len(there):
        raise DeviceError(
            f"--gpus {count}: {len(there)} GPUs are visible here",
            "leave the profile out to run on the CPU; see with `bayesmesh doctor` why a GPU is missing",
        )
    with contextlib.ExitStack() as held:
        names = _take(count, there, held)
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names)
        _log.info("GPU %s", ", ".join(names))
        try:
            yield
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if before is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = before


def _take(count: int, there: list[tuple[str, Path]], held: contextlib.ExitStack) -> list[str]:
    """Lock `count` cards, all or none: two jobs that each wait for the other's card would wait for ever."""
    has_told = False
    while True:
        with contextlib.ExitStack() as attempt:
            names: list[str] = []
            for name, path in there:
                if len(names) < count and _try_lock(path, attempt):
                    names.append(name)
            if len(names) == count:
                held.push(attempt.pop_all())
                return names
        if not has_told:
            _log.info("waiting for %d of %d GPUs, which other jobs hold", count, len(there))
            has_told = True
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
