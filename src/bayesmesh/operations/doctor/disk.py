"""doctor: check that the file system of the results is writable, renames atomically, flushes, links and has space."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bayesmesh.errors import explain_os_error
from bayesmesh.operations.doctor.finding import BLOCKS, OK, WARNS, Finding

__all__ = ["check"]

GROUP = "disk"
LEAST_FREE_GIB = 2.0
SLOW_FLUSH_SECONDS = 0.5


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Write, flush, rename and link small files beside the results, and remove them."""
    place = existing(results)
    where = f"{results.resolve()}{'' if place == results else ', does not exist yet'}"
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=place) as folder:
            seconds, links = _exercise(Path(folder))
    except OSError as error:
        return [Finding(GROUP, "results", f"{where}: {error.strerror or error}", BLOCKS, _remedy(error, place))]
    findings = [Finding(GROUP, "results", where), _flush(seconds)]
    if not links:
        findings.append(
            Finding(
                GROUP, "hard links", "refused", WARNS,
                "a posterior will be a second copy of its draws: provide the space, or use another file system",
            )
        )  # fmt: skip
    return [*findings, _space(place), _cache(results)]


def _remedy(error: OSError, place: Path) -> str:
    """Return how to make the folder writable; for other causes, such as a full disk, their own remedy."""
    explained = explain_os_error(error)
    if explained is None or error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"make {place} writable, or move the checkout to a writable file system"
    return explained.remedy


def existing(path: Path) -> Path:
    """Return the path or its nearest existing parent folder."""
    whole = path.resolve()
    return path if path.is_dir() else next(p for p in whole.parents if p.is_dir())


def _exercise(folder: Path) -> tuple[float, bool]:
    """Write, flush and rename a file over another; return the seconds it took, and whether hard links work.

    Raises:
        OSError: a step fails, or the renamed file has the wrong content.
    """
    target, start = folder / "whole", time.perf_counter()
    for content in (b"first", secrets.token_bytes(4096)):
        new = folder / "new"
        with new.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        new.replace(target)
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        if target.read_bytes() != content or new.exists():
            raise OSError("a renamed file has the wrong content")
    seconds = time.perf_counter() - start
    try:
        (folder / "link").hardlink_to(target)
    except OSError:
        return seconds, False
    return seconds, True


def _flush(seconds: float) -> Finding:
    if seconds > SLOW_FLUSH_SECONDS:
        return Finding(
            GROUP, "rename and fsync", f"work, in {seconds:.2f} s for two small files", WARNS,
            "commits will be slow: raise `sampling.segment_seconds`, or use a faster file system",
        )  # fmt: skip
    return Finding(GROUP, "rename and fsync", f"work, {seconds * 1e3:.0f} ms for two small files")


def _space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free / 2**30
    if free < LEAST_FREE_GIB:
        return Finding(
            GROUP, "free space", f"{free:.1f} GiB", BLOCKS if free < 0.1 else WARNS, "remove old results, or raise the quota"
        )  # fmt: skip
    return Finding(GROUP, "free space", f"{free:.0f} GiB")


def _cache(results: Path) -> Finding:
    """Check the folder of compiled programs; they are machine code, so only the owner may write them."""
    folder = results / ".cache" / "xla"
    place = existing(folder)
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return Finding(GROUP, "cache", f"{place}: is not readable and writable", BLOCKS, f"chmod u+rwx {place}")
    others = place == folder and stat.S_IMODE(folder.stat().st_mode) & 0o077
    if others:
        return Finding(GROUP, "cache", f"{folder}: open to others", WARNS, f"chmod 700 {folder}")
    size = sum(map(_size, folder.iterdir())) if place == folder else 0
    return Finding(GROUP, "cache", f"{folder}, {size / 2**20:.0f} MiB of compiled programs", OK)


def _size(path: Path) -> int:
    """Return the bytes of a file, 0 if a job has removed it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0
