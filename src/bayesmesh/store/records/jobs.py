"""One record per job, outside the folders of the stages, of what the job read and what it wrote.

A record reveals results that are missing, altered, or made from inputs other than the current ones. Every reader of a result
checks the record first. Sizes and times are compared before contents, so checking costs as much as listing the files.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pydantic

from bayesmesh.errors import StoreError
from bayesmesh.files import MISSING_REMEDY, hash_file
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.machine import machine_name
from bayesmesh.store.records.checked import read_checked, write_checked
from bayesmesh.store.records.files import locate_file

FOLDER = "seals"
"""Folder of the records, below the results."""

ALWAYS_HASHED = 2**20
"""Files up to this size, in bytes, are compared by content regardless of their time, except chunks of arrays."""

_AGAIN = "run `snakemake --cores all {owner}`, which makes it again"


class Stamp(NamedTuple):
    """A file as it was written: sha256 in hexadecimal, size in bytes, time of change in nanoseconds."""

    sha256: str
    size: int
    mtime_ns: int


class Record(pydantic.BaseModel):
    """The record of a job.

    Attributes:
        job: name of the job, unique among those of its owner.
        specification: digest of the settings that the job read.
        settings: name of the file with all of them; empty for a job without specification.
        code: the code that it ran; empty for a job started by hand without it.
        inputs: file or folder, relative to the results -> digest of its content.
        outputs: file, relative to the results -> its stamp.
        kept: likewise for files that a later job may extend, such as committed draws, which have hashes of their own.
        files: files that the source declares -> stamp; see `bayesmesh.store.records.files`.
        machine: machine on which it ran.
        written_at: local time with offset.
        is_quick: whether the run was small, so that its numbers prove nothing.
    """

    model_config = pydantic.ConfigDict(frozen=True)

    job: str
    specification: str
    settings: str = ""
    code: str
    inputs: dict[str, str]
    outputs: dict[str, Stamp]
    kept: dict[str, Stamp] = {}
    files: dict[str, Stamp] = {}
    machine: str
    written_at: str
    is_quick: bool = False

    def below(self, name: str) -> dict[str, Stamp]:
        """Return the outputs that are a file or folder `name`, or lie below it."""
        return {file: s for file, s in self.outputs.items() if file == name or file.startswith(f"{name}/")}

    def digest(self, name: str) -> str:
        """Return the digest of an output: the sha256 of a file, or of the names and contents below a folder."""
        if name in self.outputs:
            return self.outputs[name].sha256
        lines = [f"{s.sha256}  {file.removeprefix(name)}\n" for file, s in sorted(self.below(name).items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def record_file(results: Path, owner: str, job: str) -> Path:
    """Return the file of a job's record.

    Args:
        results: folder of all results.
        owner: an experiment, or the folder of a dataset such as ``data/digits-1a2b3c4d/all``.
        job: name of the job.
    """
    return results / FOLDER / owner / f"{job}.json"


def write_record(
    path: Path,
    results: Path,
    outputs: Iterable[Path],
    made_from: Mapping[str, object],
    kept: Iterable[Path] = (),
    known: Mapping[Path, str] | None = None,
) -> Record:
    """Hash the outputs of a job and write its record, atomically.

    Args:
        path: the record, see `record_file`.
        results: folder of all results.
        outputs: files and folders that the job wrote; one that does not exist is left out.
        made_from: the other attributes of `Record`, except machine and time.
        kept: files and folders that a later job may extend.
        known: sha256 of files that the job has just hashed.
    """
    stamps = [{f.relative_to(results).as_posix(): _stamp(f, known or {}) for f in _files(p)} for p in (outputs, kept)]
    about = {"machine": machine_name(), "written_at": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    record = Record.model_validate({**made_from, "outputs": stamps[0], "kept": stamps[1], **about})
    write_checked(path, record.model_dump())
    return record


def record_outputs(
    results: Path,
    owner: str,
    job: str,
    outputs: Iterable[Path],
    code: str = "",
    inputs: Mapping[str, str] | None = None,
    *,
    is_quick: bool = False,
) -> None:
    """Write the record of files made outside the flow, without a specification, such as the index.

    Args:
        results: folder of all results.
        owner: folder of the record, such as ``comparisons``; empty for the index.
        job: name of the job.
        outputs: files that it wrote.
        code: the code that wrote them.
        inputs, is_quick: as in `Record`.
    """
    made_from = {"job": job, "specification": "", "code": code, "inputs": inputs or {}, "is_quick": is_quick}
    write_record(record_file(results, owner, job), results, outputs, made_from)


def read_record(path: Path) -> Record:
    """Return a record.

    Raises:
        StoreError: it is missing or damaged.
    """
    about = path.stat() if path.is_file() else None
    return _read(path, about and (about.st_size, about.st_mtime_ns))


@functools.lru_cache(maxsize=256)
def _read(path: Path, about: tuple[int, int] | None) -> Record:
    del about
    remedy = "run the job again, which writes it"
    try:
        return Record.model_validate(read_checked(path, remedy, must_have_digest=True))
    except pydantic.ValidationError as error:
        raise StoreError(f"{path}: is damaged: not a record of a job", remedy) from error


def find_record(results: Path, path: Path) -> Record:
    """Return the record of the job that wrote a file or a folder.

    Raises:
        StoreError: no record lists it among its outputs; damaged records are named.
    """
    if not os.path.exists(path):
        raise StoreError(f"{path}: does not exist", MISSING_REMEDY)
    name, damaged = path.relative_to(results).as_posix(), []
    for file in _records_for(results, path):
        try:
            record = read_record(file)
        except StoreError as error:
            damaged.append(error.message)
            continue
        if record.below(name):
            return record
    reason = f": {damaged[0]}" if damaged else ""
    raise StoreError(f"{path}: no record of the job that wrote it{reason}", _again(results, path))


def _records_for(results: Path, path: Path) -> list[Path]:
    """Return the records that may list a path: those of its experiment, or of its dataset and splits."""
    parts = path.relative_to(results).parts
    # Results that belong to no experiment, such as the index, lie beside the experiments.
    owner = "" if len(parts) == 1 else "/".join(parts[:2]) if parts[0] == "data" else parts[0]
    return records_of(results, owner)


def records_of(results: Path, owner: str) -> list[Path]:
    """Return the records of an experiment, or of a dataset such as ``data/digits-1a2b3c4d`` with all its splits."""
    folder = results / FOLDER / owner
    return sorted((folder.rglob if owner.startswith("data/") else folder.glob)("[!.]*.json"))


def check_output(results: Path, path: Path, *, is_thorough: bool = False) -> str:
    """Return the digest of a result after comparing it, and all that the same job wrote, with the job's record.

    Args:
        results: folder of all results.
        path: file or folder of the result.
        is_thorough: see `damage_of`.

    Raises:
        StoreError: it has no record, or a file is missing, altered, or does not belong there.
    """
    record = find_record(results, path)
    for line in damage_of(results, record.outputs, is_thorough=is_thorough):
        raise StoreError(line, _again(results, path))
    return record.digest(path.relative_to(results).as_posix())


def check_made_from(results: Path, path: Path) -> None:
    """Compare the recorded inputs of a result with the current ones.

    Raises:
        StoreError: an input has changed since.
    """
    for line in stale_inputs(results, find_record(results, path)):
        raise StoreError(f"{path}: {line}", _again(results, path))


def stale_inputs(results: Path, record: Record) -> Iterator[str]:
    """Yield one line per input of a job whose content has changed, according to the records of the jobs that wrote them."""
    for name, digest in record.inputs.items():
        try:
            found = find_record(results, results / name).digest(name)
        except StoreError as error:
            yield f"was made from {results / name}, of which nothing is known now: {error.message}"
        else:
            if found != digest:
                yield f"was made from another {results / name} than the present one"


def changed_files(results: Path, record: Record, *, is_thorough: bool = False) -> Iterator[str]:
    """Yield one line per file that a source declared and that has changed or is missing.

    A large file is read only if it was touched or copied.

    Args:
        results: folder of all results.
        record: record of the job that read the files.
        is_thorough: read every file.
    """
    for name, stamp in record.files.items():
        path = locate_file(name, results)
        if path is None:
            continue
        if not path.exists():
            yield f"was made from {path}, which is missing now"
        elif not path.is_file() or digest_input(path, None if is_thorough else stamp) != stamp.sha256:
            yield f"was made from another {path} than the present one"


def digest_input(path: Path, stamp: Stamp | None) -> str:
    """Return the sha256 of a file, without reading a large one whose size and time are those of its stamp."""
    about = path.stat()
    is_known = stamp is not None and about.st_size > ALWAYS_HASHED and (about.st_size, about.st_mtime_ns) == stamp[1:]
    return stamp.sha256 if stamp is not None and is_known else hash_file(path)


def stamp_files(files: Mapping[str, Path]) -> dict[str, Stamp]:
    """Return name -> stamp of the inputs of a job after reading them."""
    return {name: _stamp(path, {}) for name, path in files.items()}


def damage_of(results: Path, stamps: Mapping[str, Stamp], *, is_thorough: bool = False) -> Iterator[str]:
    """Yield one line per file of a job that is missing or altered, and per file that does not belong in one of its folders.

    Args:
        results: folder of all results.
        stamps: outputs of the job's record; or what the job keeps, until another one extends it.
        is_thorough: read every file; otherwise only those that are small, or whose size or time has changed.
    """
    yield from _differences(results, stamps, is_thorough=is_thorough)
    for folder in _folders(stamps):
        for file in _files([results / folder]):
            if file.relative_to(results).as_posix() not in stamps:
                yield f"{file}: does not belong there: the job that wrote {results / folder} did not write it"


def _differences(results: Path, stamps: Mapping[str, Stamp], *, is_thorough: bool) -> Iterator[str]:
    lost = ""
    for name, stamp in stamps.items():
        # Chunks have checksums, which are checked when they are read.
        is_chunk = ".zarr/" in name and "/c/" in name
        line = _difference(results / name, stamp, is_chunk=is_chunk, is_thorough=is_thorough)
        # The files of a missing folder are consecutive and have the same line.
        if line is not None and line != lost:
            yield line
            lost = line


def _difference(path: Path, stamp: Stamp, *, is_chunk: bool, is_thorough: bool) -> str | None:
    try:
        about = path.stat()
        if not path.is_file():
            return f"{path}: not a file"
        is_same = (about.st_size, about.st_mtime_ns) == stamp[1:]
        if is_same and not is_thorough and (about.st_size > ALWAYS_HASHED or is_chunk):
            return None
        if about.st_size != stamp.size:
            return f"{path}: has been altered: {about.st_size} bytes instead of {stamp.size}"
        return None if hash_file(path) == stamp.sha256 else f"{path}: has been altered: its sha256 is another one"
    except (FileNotFoundError, NotADirectoryError):
        while not path.parent.is_dir():
            path = path.parent
        return f"{path}: is {'not a folder' if path.is_file() else 'missing'}"
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"


def _folders(names: Iterable[str]) -> list[str]:
    """Return the outermost Zarr stores among files, where an extra file changes what is read."""
    parts = (name.split("/") for name in names)
    ends = ((p, next((i for i, part in enumerate(p[:-1]) if part.endswith(".zarr")), None)) for p in parts)
    return sorted({"/".join(p[: i + 1]) for p, i in ends if i is not None})


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Return files, and those below folders, without hidden ones (temporary files, Snakemake's time stamps) and locks."""
    for path in paths:
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (f for f in below if os.path.isfile(f) and not f.name.startswith(".") and f.name != LOCK_NAME)


def _stamp(path: Path, known: Mapping[Path, str]) -> Stamp:
    about = path.stat()
    return Stamp(known.get(path) or hash_file(path), about.st_size, about.st_mtime_ns)


def _again(results: Path, path: Path) -> str:
    parts = path.relative_to(results).parts
    return _AGAIN.format(owner="quickstart" if parts[0] == "data" or len(parts) == 1 else parts[0])
