"""Find all damage to the files that Bayesmesh stored, and continue after any error."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmesh.config.declarations import AnalysisDeclaration, declared, list_analyses
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.files import is_as_written, read_bytes
from bayesmesh.report.times import check_table
from bayesmesh.store.chains.damage import find_damage
from bayesmesh.store.chains.markers import MARKER, marker_names, read_markers
from bayesmesh.store.chains.segments import IDENTITY_REMEDY, ChainStore
from bayesmesh.store.layout import (
    DataLayout,
    ExperimentLayout,
    SweepLayout,
    process_folder,
)
from bayesmesh.store.ledger import read_rows
from bayesmesh.store.lock import LOCK_NAME, describe_writer
from bayesmesh.store.records.checked import read_checked
from bayesmesh.store.records.jobs import (
    FOLDER,
    Record,
    changed_files,
    damage_of,
    read_record,
    record_file,
    records_of,
    stale_inputs,
)
from bayesmesh.workflow.jobs import ASIDE, Job, data_outputs, experiment_outputs, is_altered

COMPARISON = "comparison"
"""Job that compares the members of a sweep."""

GROUP = re.compile(r"^(group-\d{3,})(-process-\d{3,})?$")
"""Name of the folder of one process of a chain group."""


class Findings(NamedTuple):
    """What is wrong with the results of one owner, one line each.

    Attributes:
        damaged: files that are missing, altered, unreadable or superfluous; a line begins with the path.
        outdated: results that were made from something other than what exists now.
        writers: jobs at work, whose results were not checked.
    """

    damaged: list[str]
    outdated: list[str]
    writers: list[str]

    @property
    def wrong(self) -> list[str]:
        return [*self.damaged, *self.outdated]


def list_owners(results: Path) -> list[str]:
    """Return the owners of stored results: datasets, experiments and others by the folder of their records, the index as ""."""

    def names(*folders: Path) -> list[str]:
        return sorted({path.name for folder in folders for path in folder.glob("[!.]*") if path.is_dir()})

    data = [f"data/{name}" for name in names(results / "data", results / FOLDER / "data")]
    others = [name for name in names(results, results / FOLDER) if name not in ("data", FOLDER)]
    return [owner for owner in (*data, *others, "") if is_stored(results, owner)]


def is_stored(results: Path, owner: str) -> bool:
    """Return whether anything of an owner is stored, or a record of it."""
    there = [*records_of(results, owner), *(path for path, _ in _outputs(results, owner) if os.path.lexists(path))]
    return bool(there) or (owner != "" and any((results / owner).glob("chains/*/")))


def _outputs(results: Path, owner: str) -> Iterator[tuple[Path, Path]]:
    """Yield the results that an owner may have, each with the record that its job leaves."""
    if not owner:
        yield results / "index.html", record_file(results, owner, "index")
    elif owner.startswith("data/"):
        name = owner.partition("/")[2]
        yield DataLayout(results, name).fetched, record_file(results, owner, "fetch")
        for split in (results / owner).glob("*/"):
            made = data_outputs(DataLayout(results, name, split.name))["shard"]
            yield from ((path, record_file(results, f"{owner}/{split.name}", "shard")) for path in made)
    elif owner == "comparisons":
        yield from (
            (path, path.parents[1] / FOLDER / owner / f"{path.stem}.json")
            for path in sorted((results / owner).glob("[!.]*.csv"))
        )
    else:
        layout = ExperimentLayout(results, owner)
        sweep = SweepLayout(results, owner)
        yield from ((path, record_file(results, owner, COMPARISON)) for path in (sweep.table, sweep.page))
        groups = (path.stem for path in layout.chains.glob("group-*.json"))
        jobs = experiment_outputs(layout, groups, [*list_analyses(), *_own_analyses(layout)])
        yield from ((path, record_file(results, owner, job)) for job, paths in jobs.items() for path in paths)


def _own_analyses(layout: ExperimentLayout) -> Iterator[AnalysisDeclaration]:
    """Yield the analyses of users' packages that an experiment has requested, if their code exists."""
    stages = set()
    for path in layout.spec("any").parent.glob("[!.]*.json"):
        # An unreadable file is a damaged specification, which is reported elsewhere.
        with contextlib.suppress(OSError, ValueError):
            stages.add(Job.model_validate_json(read_bytes(path)).stage)
    for stage in sorted(stage for stage in stages if ":" in stage):
        with contextlib.suppress(ConfigError):
            yield declared(stage)


def check(results: Path, owner: str) -> Findings:
    """Check all results of an owner, and again if a job has finished meanwhile.

    Files are hashed in pieces, so memory is bounded.
    """
    while True:
        before = _times(records_of(results, owner))
        found = _check(results, owner)
        if _times(records_of(results, owner)) == before:
            return found


def _times(paths: Iterable[Path]) -> dict[Path, int]:
    times = {}
    for path in paths:
        with contextlib.suppress(OSError):
            times[path] = path.stat().st_mtime_ns
    return times


def _check(results: Path, owner: str) -> Findings:
    records, lines = read_records(results, owner)
    at_work = dict(_jobs_at_work(results, owner))
    settled = [record for record in records if record.job not in at_work]
    if owner and not owner.startswith("data/"):
        lines += _chains(ExperimentLayout(results, owner), settled)
    for record in settled:
        lines += damage_of(results, record.outputs, is_thorough=True)
    if not at_work:
        lines += _without_record(results, owner, records)
        lines += _set_aside(results, owner)
    if owner:
        lines += _records_of_jobs(results / owner, settled)
        lines += [] if owner.startswith("data/") or at_work else _time_table(ExperimentLayout(results, owner))
    outdated = [
        f"{results / owner}: {record.job} {line}"
        for record in settled
        for line in (*stale_inputs(results, record), *changed_files(results, record, is_thorough=True))
    ]
    # Several checks may find the same file; the first says most.
    damaged = {line.partition(": ")[0]: line for line in reversed(lines)}
    writers = [f"{results / owner}: {job} {writer}; its results were not checked" for job, writer in at_work.items()]
    return Findings(list(damaged.values())[::-1], outdated, writers)


def _set_aside(results: Path, owner: str) -> Iterator[str]:
    """Name the records that a killed run set aside: neither they nor lost results of their jobs are anywhere else."""
    for path in sorted((results / FOLDER / owner).rglob(f"[!.]*.json{ASIDE}") if owner else ()):
        if not path.with_suffix("").exists():
            yield f"{path}: was set aside by a run that ended before its job had run again"


def read_records(results: Path, owner: str) -> tuple[list[Record], list[str]]:
    """Return the records, and one line per damaged one."""
    records, lines = [], []
    for path in records_of(results, owner):
        try:
            records.append(read_record(path))
            lines += [] if is_as_written(path) else [f"{path}: is damaged: its text is not what was written"]
        except StoreError as error:
            lines.append(error.message)
    return records, lines


def _jobs_at_work(results: Path, owner: str) -> Iterator[tuple[str, str]]:
    """Yield job and writer of each job that a process is running."""
    folder = results / FOLDER / owner
    locks = {path: path.name[1:].removesuffix(".lock") for path in folder.rglob(".*.lock")} if owner else {}
    chains = (results / owner).glob(f"chains/*/group-*/{LOCK_NAME}") if owner else ()
    locks |= {path: f"sample-{match[1]}" for path in chains if (match := GROUP.match(path.parent.name))}
    for path, job in locks.items():
        # A lock that vanishes or cannot be read is not held.
        with contextlib.suppress(OSError, StoreError):
            if writer := describe_writer(path):
                yield job, writer


def _without_record(results: Path, owner: str, records: Sequence[Record]) -> Iterator[str]:
    for path, record in _outputs(results, owner):
        name = path.relative_to(results).as_posix()
        if os.path.lexists(path) and not any(record.below(name) for record in records):
            yield f"{path}: no record of the job that wrote it: {record} is missing, damaged or of another job"


def _records_of_jobs(folder: Path, records: Sequence[Record]) -> Iterator[str]:
    """Check the specifications and the ledgers of jobs."""
    for path in sorted((folder / "specs").glob("[!.]*.json")):
        try:
            if is_altered(path, read_bytes(path)):
                yield f"{path}: has been altered: its name holds the digest of another content"
        except OSError as error:
            yield f"{path}: cannot be read: {error.strerror}"
    # By their names in the folder: a file system may take letters of either case for the same.
    names = {path.name for path in (folder / "specs").glob("*")}
    for record in (record for record in records if record.settings and record.settings not in names):
        yield f"{folder / 'specs' / record.settings}: is missing, though {record.job} has run with these settings"
    ledgers = folder / "ledger"
    there = sorted(ledgers.glob("[!.]*.json"))
    for path in there:
        try:
            read_rows(path)
            if not is_as_written(path):
                yield f"{path}: is damaged: its text is not what was written"
        except StoreError as error:
            yield error.message
    for record in (record for record in records if record.specification):
        if (path := ledgers / f"{record.job}.json") not in there:
            yield f"{path}: is missing, though {record.job} has run"


def _time_table(layout: ExperimentLayout) -> Iterator[str]:
    """Compare the table of times with the ledgers, one of which may be an older intact copy."""
    try:
        yield from check_table(layout)
    except StoreError as error:
        yield error.message
    except (OSError, UnicodeDecodeError):
        # The table is missing or damaged, and named by the record of its job.
        return


def _chains(layout: ExperimentLayout, records: Iterable[Record]) -> Iterator[str]:
    """Check the chains of all identities by their markers, and by the records of the jobs that last extended them."""
    for identity in sorted(path for path in layout.chains.glob("[!.]*") if path.is_dir()):
        num_processes = yield from _identity(identity / "identity.json")
        groups = sorted(path for path in identity.glob("*") if path.is_dir() and GROUP.match(path.name))
        for group in groups:
            yield from _group(group)
        yield from _processes(identity, groups, num_processes)
    for record in records:
        kept = record.kept
        commits = [layout.results / name for name in kept if "/commits/" in name]
        there = {name for folder in {path.parent.parent for path in commits} for name in marker_names(folder)}
        if commits and _end(there) > _end(path.name for path in commits):
            # Draws were committed since, and replaced some of these files.
            kept = {n: s for n, s in kept.items() if n.endswith(("/identity.json", "/store.json"))}
        yield from damage_of(layout.results, kept, is_thorough=True)


def _end(names: Iterable[str]) -> tuple[bool, int]:
    """Return phase and end of the last commit, from the names of markers."""
    parts = (match for name in names if (match := MARKER.match(name)))
    return max(((match[1] == "sample", int(match[3])) for match in parts), default=(False, 0))


def _identity(path: Path) -> Generator[str, None, int]:
    """Check the record of an identity; return the number of processes per group."""
    try:
        return int(read_checked(path, IDENTITY_REMEDY)["config"]["compute"].get("processes", 1))
    except StoreError as error:
        yield error.message
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        yield f"{path}: is damaged: {error!r}"
    return 1


def _group(folder: Path) -> Iterator[str]:
    """Check the chains of one process of a group by their markers."""
    damaged: list[str] = []
    commits = read_markers(folder, damaged)
    yield from damaged
    segment_draws = max((commit.stop - commit.start for commit in commits), default=1)
    about = folder / "store.json"
    if os.path.exists(about):
        try:
            segment_draws = ChainStore(folder, 1, {"identity": folder.parent.name}).segment_draws
        except StoreError as error:
            yield error.message
    elif commits or damaged:
        yield f"{about}: is missing"
    yield from find_damage(folder, segment_draws, commits, goes_on=True)


def _processes(identity: Path, folders: Sequence[Path], num_processes: int) -> Iterator[str]:
    """Check that every group with commits has one folder per process."""
    begun = [match[1] for folder in folders if marker_names(folder) and (match := GROUP.match(folder.name))]
    for group in sorted(set(begun)):
        for process in range(num_processes):
            folder = process_folder(identity / group, process)
            if not folder.is_dir():
                yield f"{folder}: is missing, although {num_processes} processes made the draws of {group}"
