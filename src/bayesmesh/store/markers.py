"""Markers: the small files that say which iterations are committed, in which files, with which hashes.

What no marker covers was never written, as far as anybody is concerned.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.store.files import read_json, write_json

__all__ = ["DAMAGE_REMEDY", "Commit", "marker_names", "read_markers", "write_marker"]

_MARKER = re.compile(r"^(warmup|sample)-(\d{9})-(\d{9})\.json$")

DAMAGE_REMEDY = "move the chain's folder away to start it afresh, or restore the file"


@dataclasses.dataclass(frozen=True)
class Commit:
    """One marker: iterations [start, stop) of a phase, the files they are in, and the checkpoint behind them.

    `facts` are those of the iterations from ``facts["first_new"]`` on; where a segment was filled in several runs,
    `earlier` holds the facts of its earlier iterations. `previous` names the marker that this one continues: empty
    for the first, None where it was not recorded. `replaces` names the marker of the same segment, when it held
    less, that this one makes void.
    """

    phase: str
    start: int
    stop: int
    files: Mapping[str, str]
    checkpoint: str
    facts: Mapping[str, Any]
    earlier: tuple[Mapping[str, Any], ...] = ()
    previous: str | None = None
    replaces: str = ""

    @property
    def name(self) -> str:
        """File name of the marker."""
        return f"{self.phase}-{self.start:09d}-{self.stop:09d}.json"

    @property
    def all_facts(self) -> tuple[Mapping[str, Any], ...]:
        """The facts of every run that filled the segment."""
        return (*self.earlier, self.facts)

    def follows(self, last: Commit | None) -> bool:
        """Return whether nothing is missing between `last` and this one."""
        begin = last.stop if last is not None and last.phase == self.phase else 0
        return self.start == begin and self.previous in (None, last.name if last else "")


def marker_names(folder: Path) -> set[str]:
    """Return the names of all markers in ``commits/``."""
    return {path.name for path in (folder / "commits").glob("*.json") if _MARKER.match(path.name)}


def read_markers(folder: Path) -> list[Commit]:
    """Return the markers of a chain group, warmup first, by start; those that another one replaces are left out.

    Raises:
        StoreError: one cannot be read, or lacks what belongs in it.
    """
    found = []
    for name in marker_names(folder):
        path = folder / "commits" / name
        value, (phase, start, stop) = read_json(path), name.removesuffix(".json").split("-")
        try:
            commit = Commit(
                phase, int(start), int(stop), dict(value["files"]), str(value["checkpoint"]), dict(value["facts"]),
                tuple(value.get("earlier", ())), value.get("previous"), str(value.get("replaces", "")),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{path}: is damaged: {error!r}", DAMAGE_REMEDY) from error
        found.append(commit)
    replaced = {c.replaces for c in found}
    return sorted((c for c in found if c.name not in replaced), key=lambda c: (c.phase == "sample", c.start, c.stop))


def write_marker(folder: Path, commit: Commit) -> None:
    """Write a marker, whole or not at all: from then on its segment is committed."""
    content = dataclasses.asdict(commit)
    write_json(folder / "commits" / commit.name, {k: v for k, v in content.items() if k not in _IN_NAME})


_IN_NAME = ("phase", "start", "stop")
