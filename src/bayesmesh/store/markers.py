"""Read and write markers: small files that list committed iterations, their files and hashes.

Iterations without a marker count as never written.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from bayesmesh.errors import StoreError
from bayesmesh.store.sealed import read_sealed, write_sealed

MARKER = re.compile(r"^(warmup|sample)-(\d{9})-(\d{9})\.json$")
"""Phase, first iteration and end of the range in the file name of a marker."""

DAMAGE_REMEDY = "move the chain's folder away to start it again, or restore the file"


class Facts(TypedDict, total=False):
    """Facts about the iterations of one run in one segment.

    Attributes:
        first_new: absolute index of the first iteration.
        count: number of iterations per chain.
        seconds: wall time.
        gradients: gradient evaluations, over all chains.
        acceptance: mean acceptance rate.
        divergences: divergent trajectories.
        step_size: step size of the kernel at the end.
        committed_at: seconds since the epoch.
        device, host, software: device, host and versions of the run.
        changed_environment: differences from the environment in which the chains began.
    """

    first_new: int
    count: int
    seconds: float
    gradients: int
    acceptance: float
    divergences: int
    step_size: float
    committed_at: float
    device: str
    host: str
    changed_environment: list[str]


@dataclasses.dataclass(frozen=True)
class Commit:
    """One marker: iterations [start, stop) of a phase, their files, and the checkpoint after them.

    `facts` cover the iterations from ``facts["first_new"]`` on; if a segment was filled in several runs, `earlier`
    covers its earlier iterations. `previous` names the marker that this one continues: empty for the first, None if
    not recorded. `replaces` names the shorter marker of the same segment that this one replaces. `metadata` contains a
    digest of the description of every array and group.
    """

    phase: str
    start: int
    stop: int
    files: Mapping[str, str]
    checkpoint: str
    facts: Facts
    earlier: tuple[Facts, ...] = ()
    previous: str | None = None
    replaces: str = ""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """File name of the marker."""
        return f"{self.phase}-{self.start:09d}-{self.stop:09d}.json"

    @property
    def all_facts(self) -> tuple[Facts, ...]:
        """The facts of every run that filled the segment."""
        return (*self.earlier, self.facts)

    def follows(self, last: Commit | None) -> bool:
        """Return whether this commit continues `last` without a hole."""
        begin = last.stop if last is not None and last.phase == self.phase else 0
        return self.start == begin and self.previous in (None, last.name if last else "")


def marker_names(folder: Path) -> set[str]:
    """Return the names of all markers in ``commits/``."""
    return {path.name for path in (folder / "commits").glob("*.json") if MARKER.match(path.name)}


def read_markers(folder: Path) -> list[Commit]:
    """Return the markers of a chain group, warmup first, by start, without replaced ones.

    A writer may commit at the same time.

    Raises:
        StoreError: a marker cannot be read, or lacks a key.
    """
    while True:
        names = marker_names(folder)
        try:
            found = [_read_marker(folder / "commits" / name) for name in sorted(names)]
        except StoreError:
            if names <= marker_names(folder):
                raise
            # A writer has just removed a replaced marker.
            continue
        replaced = {c.replaces for c in found}
        return sorted(
            (c for c in found if c.name not in replaced), key=lambda c: (c.phase == "sample", c.start, c.stop)
        )


def _read_marker(path: Path) -> Commit:
    value = read_sealed(path, DAMAGE_REMEDY, must_have_digest=True)
    try:
        if value["checkpoint"] not in value["files"]:
            raise ValueError("its checkpoint is not among its files")
        facts: Facts = value["facts"]
        if not isinstance(facts, dict):
            raise TypeError("its facts are not an object")
        phase, start, stop = path.stem.split("-")
        return Commit(
            phase, int(start), int(stop), dict(value["files"]), str(value["checkpoint"]), facts,
            tuple(value["earlier"]), value["previous"], str(value["replaces"]), dict(value["metadata"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path}: is damaged: {error!r}", DAMAGE_REMEDY) from error


def write_marker(folder: Path, commit: Commit) -> None:
    """Write a marker atomically; this commits its segment."""
    content = {k: v for k, v in dataclasses.asdict(commit).items() if k not in ("phase", "start", "stop")}
    write_sealed(folder / "commits" / commit.name, content)
