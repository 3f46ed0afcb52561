"""Let the records of jobs say that what is there now is what the jobs wrote, for tests that write results themselves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def record_anew(results: Path, path: Path) -> None:
    """Record a result anew that a test has altered; its job stays the one that wrote it."""
    from bayesmesh.store.records.jobs import read_record, write_record

    name = path.relative_to(results).as_posix()
    for file in (results / "seals").rglob("*.json"):
        record = read_record(file)
        if record.below(name):
            made_from = record.model_dump(include={"job", "specification", "code", "inputs", "observed"})
            write_record(file, results, [results / each for each in record.outputs], made_from)


def record_as(
    results: Path, owner: str, job: str, outputs: Iterable[Path], kept: Iterable[Path] = (), **made_from: Any
) -> None:
    """Record results that no job wrote."""
    from bayesmesh.store.records.jobs import record_file, write_record

    about = {"job": job, "specification": "", "code": "", "inputs": {}, **made_from}
    write_record(record_file(results, owner, job), results, outputs, about, kept)
