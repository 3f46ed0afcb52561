"""Markers: the small files that say which iterations are committed, in which files, with which hashes.

What no marker covers was never written, as far as anybody is concerned.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.store.files import read_json, write_json

__all__ = ["DAMAGE_REMEDY", "MARKER", "Commit", "marker_names", "read_markers", "write_marker"]

MARKER = re.compile(r"^(warmup|sample)-(\d{9})-(\d{9})\.json$")
"""Phase, first iteration and the one behind the last, in the name of a marker's file."""

DAMAGE_REMEDY = "move the chain's folder away to start it afresh, or restore the file"


@dataclasses.dataclass(frozen=True)
class Commit:
    """One marker: iterations [start, stop) of a phase, the files they are in, and the checkpoint behind them.

    `facts` are those of the iterations from ``facts["first_new"]`` on; where a segment was filled in several runs,
    `earlier` holds the facts of its earlier iterations. `previous` names the marker that this one continues: empty
    for the first, None where it was not recorded. `replaces` names the marker of the same segment, when it held
    less, that this one makes void. `metadata` holds a digest of the description of every array and group.
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
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

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
    return {path.name for path in (folder / "commits").glob("*.json") if MARKER.match(path.name)}


def read_markers(folder: Path) -> list[Commit]:
    """Return the markers of a chain group, warmup first, by start; those that another one replaces are left out.

    Raises:
        StoreError: one cannot be read, or lacks what belongs in it.
    """
    found = []
    for name in marker_names(folder):
        path = folder / "commits" / name
        value = read_json(path, DAMAGE_REMEDY)
        try:
            if value.pop("sha256") != _digest(name, value) or value["checkpoint"] not in value["files"]:
                raise ValueError("its content is not what was written")
            phase, start, stop = name.removesuffix(".json").split("-")
            commit = Commit(
                phase, int(start), int(stop), dict(value["files"]), str(value["checkpoint"]), dict(value["facts"]),
                tuple(value["earlier"]), value["previous"], str(value["replaces"]), dict(value["metadata"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{path}: is damaged: {error!r}", DAMAGE_REMEDY) from error
        found.append(commit)
    replaced = {c.replaces for c in found}
    return sorted((c for c in found if c.name not in replaced), key=lambda c: (c.phase == "sample", c.start, c.stop))


def write_marker(folder: Path, commit: Commit) -> None:
    """Write a marker, whole or not at all: from then on its segment is committed."""
    content = {k: v for k, v in dataclasses.asdict(commit).items() if k not in ("phase", "start", "stop")}
    # Through JSON, as a reader will have it.
    content = json.loads(json.dumps(content))
    write_json(folder / "commits" / commit.name, {**content, "sha256": _digest(commit.name, content)})


def _digest(name: str, content: Mapping[str, Any]) -> str:
    """Return a sha256 over a marker's name and content, so that no change of either passes unseen."""
    return hashlib.sha256(json.dumps([name, content], sort_keys=True).encode()).hexdigest()
