"""Run a job: one process at a time, inputs checked before and after, and a record of what was read and written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bayesmesh.errors import StoreError
from bayesmesh.store.chains.manifests import read_manifest
from bayesmesh.store.chains.markers import read_markers
from bayesmesh.store.hashes import hashes_of
from bayesmesh.store.layout import process_folder
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.records.jobs import check_made_from, check_output, stamp_files, write_record
from bayesmesh.workflow.jobs import Job, write_spec


@contextlib.contextmanager
def recorded(job: Job, code: str) -> Iterator[None]:
    """Check what a job reads, let it run, and write its record; without success, the record of the last run stays.

    Args:
        job: what it reads and writes.
        code: its code, see `stage_code`.

    Raises:
        StoreError: another process runs the same job; or an input is missing, altered, out of date, or was replaced
            while the job ran.
        DataError: a file that the source declares is missing.
    """
    # The locks of chains also hold for several processes.
    with contextlib.nullcontext() if job.is_sampling else WriterLock(job.lock.parent, name=job.lock.name) as lock:
        inputs = check_inputs(job)
        paths = job.files.find()
        before = _states(paths)
        yield
        for name, digest in inputs.items():
            if check_output(job.results, job.results / name) != digest:
                raise StoreError(
                    f"{job.results / name}: was replaced while {job.name} read it", "run it again", may_pass=True
                )
        files = stamp_files(paths)
        for name, state in _states(paths).items():
            if state != before[name]:
                raise StoreError(f"{name}: was changed while {job.name} read it", "run it again", may_pass=True)
        if lock is not None:
            lock.check()
        made_from = {
            "job": job.name, "specification": job.digest, "settings": write_spec(job).name, "code": code,
            "inputs": inputs, "files": files,
        }  # fmt: skip
        kept = _kept(job)
        write_record(job.record, job.results, job.outputs, made_from, kept, _known(job, kept))


def _states(paths: Mapping[str, Path]) -> dict[str, tuple[int, int, int]]:
    """Return name -> values that change with a file: its inode number, size and time."""
    found = {name: path.stat() for name, path in paths.items()}
    return {name: (about.st_ino, about.st_size, about.st_mtime_ns) for name, about in found.items()}


def check_inputs(job: Job) -> dict[str, str]:
    """Return the digest of each input, by its path relative to the results.

    Raises:
        StoreError: an input is missing or altered, or was made from something other than what exists now.
    """
    digests = {path.relative_to(job.results).as_posix(): check_output(job.results, path) for path in job.inputs}
    for path in job.inputs:
        check_made_from(job.results, path)
    return digests


def _kept(job: Job) -> list[Path]:
    """Return the folders of the chains that a job of `sample` extended, with the record that they share."""
    if not job.is_sampling:
        return []
    manifest = read_manifest(job.declared)
    group = job.declared.parents[1] / manifest.folder
    folders = [process_folder(group, process) for process in range(manifest.num_processes)]
    return [group.parent / "identity.json", *folders]


def _known(job: Job, kept: Iterable[Path]) -> dict[Path, str]:
    """Return the sha256 of files that the job has just hashed: those of Zarr stores, and of commits."""
    known: dict[Path, str] = {}
    for folder in (path for path in job.outputs if path.suffix == ".zarr" and path.with_suffix(".sha256").exists()):
        known |= {folder.parent / name: value for name, value in hashes_of(folder).items()}
    for folder in (path for path in kept if path.is_dir()):
        known |= {folder / name: value for commit in read_markers(folder) for name, value in commit.files.items()}
    return known
