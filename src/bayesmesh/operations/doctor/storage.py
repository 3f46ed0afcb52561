"""doctor: what is read and written: the file system of the results, the mirror of real data, the configuration."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bayesmesh.config.loading import load_configuration
from bayesmesh.data.fetching import MIRROR_VARIABLE
from bayesmesh.data.sources import mnist, movielens
from bayesmesh.errors import ConfigError, explain_os_error
from bayesmesh.operations.doctor.finding import BLOCKS, WARNS, Row

LEAST_FREE_GIB = 2.0
SLOW_FLUSH_SECONDS = 0.5

FOLDERS = {"mnist": tuple(mnist.FILES), "ml-1m": movielens.FILES}
"""Folder of the mirror -> files that `fetch` needs in it."""


def check_disk(results: Path, environ: Mapping[str, str], config: Path) -> Iterator[Row]:
    """Write, flush, rename and link small files beside the results, and remove them."""
    place = _existing(results)
    where = f"{results.resolve()}{'' if place == results else ', does not exist yet'}"
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=place) as folder:
            seconds, links = _exercise(Path(folder))
    except OSError as error:
        yield "results", f"{where}: {error.strerror or error}", BLOCKS, _write_remedy(error, place)
        return
    yield "results", where
    if seconds > SLOW_FLUSH_SECONDS:
        remedy = "commits will be slow: raise `sampling.segment_seconds`, or use a faster file system"
        yield "rename and fsync", f"work, in {seconds:.2f} s for two small files", WARNS, remedy
    else:
        yield "rename and fsync", f"work, {seconds * 1e3:.0f} ms for two small files"
    if not links:
        remedy = "a posterior will be a second copy of its draws: provide the space, or use another file system"
        yield "hard links", "refused", WARNS, remedy
    free = shutil.disk_usage(place).free / 2**30
    if free < LEAST_FREE_GIB:
        state = BLOCKS if free < 0.1 else WARNS
        yield "free space", f"{free:.1f} GiB", state, "remove old results, or raise the quota"
    else:
        yield "free space", f"{free:.0f} GiB"
    yield _describe_cache(results / ".cache" / "xla")


def _write_remedy(error: OSError, place: Path) -> str:
    """Return how to make the folder writable; for other causes, such as a full disk, their own remedy."""
    explained = explain_os_error(error)
    if explained is None or error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"make {place} writable, or move the checkout to a writable file system"
    return explained.remedy


def _existing(path: Path) -> Path:
    """Return the path or its nearest existing parent folder."""
    return path if path.is_dir() else next(p for p in path.resolve().parents if p.is_dir())


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


def _describe_cache(folder: Path) -> Row:
    """Check the folder of compiled programs; they are machine code, so only the owner may write them."""
    place = _existing(folder)
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return "cache", f"{place}: not readable and writable", BLOCKS, f"chmod u+rwx {place}"
    if place == folder and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return "cache", f"{folder}: open to others", WARNS, f"chmod 700 {folder}"
    size = sum(map(_size, folder.iterdir())) if place == folder else 0
    return "cache", f"{folder}, {size / 2**20:.0f} MiB of compiled programs"


def _size(path: Path) -> int:
    """Return the bytes of a file, 0 if a job has removed it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def check_mirror(results: Path, environ: Mapping[str, str], config: Path) -> Iterator[Row]:
    """Check the mirror of real data; without one, `fetch` downloads them."""
    named = environ.get(MIRROR_VARIABLE)
    mirror = Path(named or "")
    missing = {name: files for name in FOLDERS if (files := _missing(mirror, name)) is not None}
    lacking = "; ".join(f"{name} lacks {', '.join(files)}" for name, files in missing.items() if files)
    if not named:
        yield "mirror", "none; real data are downloaded, built-in data need none"
    elif not mirror.is_dir():
        remedy = "correct it, or unset it; on a cluster the folder must be visible to all nodes"
        yield "mirror", f"{MIRROR_VARIABLE}={named}: no such folder", WARNS, remedy
    elif lacking or not missing:
        remedy = (
            "put the files of MNIST in its folder mnist and those of MovieLens in ml-1m (docs/reference/experiments.md)"
        )
        yield "mirror", f"{named}: {lacking or f'has none of {", ".join(FOLDERS)}'}", WARNS, remedy
    else:
        yield "mirror", f"{named}: {', '.join(missing)}"


def _missing(mirror: Path, name: str) -> list[str] | None:
    """Return the files missing in a folder of the mirror; None if the folder does not exist."""
    folder, archive = mirror / name, movielens.ARCHIVE
    if name == "ml-1m" and ((mirror / archive).is_file() or (folder / archive).is_file()):
        return []
    return [file for file in FOLDERS[name] if not (folder / file).is_file()] if folder.is_dir() else None


def check_configuration(results: Path, environ: Mapping[str, str], config: Path) -> Iterator[Row]:
    """Load every experiment, like each start of the workflow."""
    try:
        run, experiments, broken, *_ = load_configuration(config)
        for error in broken.values():
            raise error
        yield "experiments", f"{len(experiments)} experiments, {len(run.experiments)} of them listed in config.yaml"
    except ConfigError as error:
        yield "experiments", error.message, BLOCKS, error.remedy or "correct it; config/README.md lists all keys"
