"""Read and write markers: small files that list committed iterations, their files and hashes.

Iterations without a marker count as never written.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from bayesmesh.errors import StoreError
from bayesmesh.store.records.checked import read_checked, write_checked

MARKER = re.compile(r"^(warmup|sample)-(\d{9})-(\d{9})\.json$")
"""File name of a marker: phase, first iteration, end of the range."""

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints."""

DAMAGE_REMEDY = "move the folder of the chain group away to sample it again, or restore the file"


class Ended(TypedDict):
    """The window after which more iterations would be useless.

    Attributes:
        phase: ``warmup`` or ``sample``.
        done: iterations of the phase at its end.
        trouble: name of the trouble that all chains were in.
    """

    phase: str
    done: int
    trouble: str


class Facts(TypedDict, total=False):
    """Facts about the iterations that one run added to one segment.

    Attributes:
        first_new: absolute index of the first iteration.
        count: number of iterations per chain.
        seconds: wall time.
        gradients: gradient evaluations over all chains, not counting those during which a chain only waits.
        acceptance: mean acceptance rate.
        divergences: divergent trajectories.
        step_size: step size of the kernel at the end.
        committed_at: seconds since the epoch.
        device, host, software: device, host and versions of the run.
        runs: trouble -> number of consecutive iterations, up to the last, in which all chains were in it.
        troubled: trouble -> chains that were in it for a whole window up to the last iteration.
        ended: set once more iterations would be useless.
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
    runs: dict[str, int]
    troubled: dict[str, list[int]]
    ended: Ended
    changed_environment: list[str]


@dataclasses.dataclass(frozen=True)
class Commit:
    """One marker: iterations [start, stop) of a phase, their files, and the checkpoint after them.

    Attributes:
        phase: ``warmup`` or ``sample``.
        start, stop: absolute indices of the iterations.
        files: shards and files of the checkpoint, relative to the group's folder -> sha256.
        checkpoint: archive of the state after the last iteration; one of `files`.
        facts: facts about the iterations from ``facts["first_new"]`` on.
        earlier: facts about the iterations before, if several runs filled the segment.
        previous: name of the marker that this one continues; empty for the first, None if not recorded.
        replaces: name of the shorter marker of the same segment that this one replaces; empty if there was none.
        metadata: array or group -> digest of its description.
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
    def num_draws(self) -> int:
        """Draws of a chain up to this commit; 0 during warmup."""
        return self.stop if self.phase == "sample" else 0

    @property
    def shards(self) -> dict[str, str]:
        """Shards, relative to their store -> sha256."""
        own = self.checkpoint_files
        return {name.partition("/")[2]: value for name, value in self.files.items() if name not in own}

    @property
    def checkpoint_files(self) -> dict[str, str]:
        """The archive of the checkpoint and the files of its large leaves -> sha256."""
        return {name: value for name, value in self.files.items() if name.startswith(f"{CHECKPOINTS}/")}

    @property
    def all_facts(self) -> tuple[Facts, ...]:
        """The facts of every run that filled the segment."""
        return (*self.earlier, self.facts)

    def follows(self, last: Commit | None) -> bool:
        """Return whether this commit continues `last` without a gap."""
        begin = last.stop if last is not None and last.phase == self.phase else 0
        return self.start == begin and self.previous in (None, last.name if last else "")


def marker_names(folder: Path) -> set[str]:
    """Return the names of all markers in ``commits/``."""
    commits = folder / "commits"
    # Unlike `glob`, this raises if the folder may not be read.
    return {name for name in os.listdir(commits) if MARKER.match(name)} if commits.is_dir() else set()


def read_about(folder: Path) -> dict[str, Any]:
    """Return the content of ``store.json``: identity, length of a segment, and the environment in which it was created.

    Raises:
        StoreError: it is missing or damaged.
    """
    path = folder / "store.json"
    about = read_checked(path, DAMAGE_REMEDY)
    length = about.get("segment_draws")
    # A bool is also an int, but not a length.
    if type(length) is not int or length < 1 or type(about.get("identity")) is not str:
        raise StoreError(f"{path}: is damaged: no identity or no segment_draws in it", DAMAGE_REMEDY)
    if not isinstance(about.get("environment", {}), dict):
        raise StoreError(f"{path}: is damaged: no environment in it", DAMAGE_REMEDY)
    return about


def read_markers(folder: Path, damaged: list[str] | None = None, newest: int = 0) -> list[Commit]:
    """Return the markers of a chain group without replaced ones: warmup first, then by start.

    A writer may commit at the same time.

    Args:
        folder: the group's folder.
        damaged: receives one line per damaged marker, which is left out; without it, a damaged marker is an error.
        newest: number of newest markers to open; 0 opens all.

    Raises:
        StoreError: a marker cannot be read, or lacks a key.
    """
    while True:
        names, found, problems = marker_names(folder), list[Commit](), list[StoreError]()
        for name in sorted(names, key=lambda name: (name.startswith("sample"), name))[-newest:]:
            try:
                found.append(_read_marker(folder / "commits" / name))
            except StoreError as error:
                problems.append(error)
        if problems and not names <= marker_names(folder):
            # A writer has just removed a replaced marker.
            continue
        if problems and damaged is None:
            raise problems[0]
        if damaged is not None:
            damaged += [error.message for error in problems]
        replaced = {commit.replaces for commit in found}
        kept = (commit for commit in found if commit.name not in replaced)
        return sorted(kept, key=lambda commit: (commit.phase == "sample", commit.start, commit.stop))


def _read_marker(path: Path) -> Commit:
    value = read_checked(path, DAMAGE_REMEDY, must_have_digest=True)
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
    """Write a marker atomically, which commits its iterations."""
    content = {k: v for k, v in dataclasses.asdict(commit).items() if k not in ("phase", "start", "stop")}
    write_checked(folder / "commits" / commit.name, content)
