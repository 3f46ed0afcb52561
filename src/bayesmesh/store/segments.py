"""The draws of one chain group: committed segment by segment, resumed from what is verifiably there.

A segment is a run of iterations that fills one Zarr shard of every array. It is committed in this order: shards,
fsync, checkpoint, fsync, then a marker that names every file with its sha256. What no marker covers was never
written, as far as anybody is concerned. There is one writer per group.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.store.draws import DrawArrays
from bayesmesh.store.files import atomic_path, hash_file, read_json, sync, write_json

__all__ = ["ChainStore", "Commit"]

_MARKER = re.compile(r"^(warmup|sample)-(\d{9})-(\d{9})\.json$")
_DAMAGE = "move the chain's folder away to start it afresh, or restore the file"


@dataclasses.dataclass(frozen=True)
class Commit:
    """One marker: iterations [start, stop) of a phase, the files they are in, and the checkpoint behind them.

    `facts` are those of the iterations from ``facts["first_new"]`` on; where a segment was filled in several runs,
    `earlier` holds the facts of its earlier iterations. `previous` names the marker that this one continues: empty
    for the first, None where it was not recorded.
    """

    phase: str
    start: int
    stop: int
    files: Mapping[str, str]
    checkpoint: str
    facts: Mapping[str, Any]
    earlier: tuple[Mapping[str, Any], ...] = ()
    previous: str | None = None

    @property
    def name(self) -> str:
        """File name of the marker."""
        return f"{self.phase}-{self.start:09d}-{self.stop:09d}.json"

    def follows(self, last: Commit | None) -> bool:
        """Return whether nothing is missing between `last` and this one."""
        begin = last.stop if last is not None and last.phase == self.phase else 0
        return self.start == begin and self.previous in (None, last.name if last else "")


class ChainStore:
    """A chain group on disk.

    Markers are read once and then kept in memory. Nothing is written, or swept, before the first `commit`, so that
    readers may open a store while it is written.

    Args:
        folder: the group's folder.
        segment_draws: iterations of a whole segment; an existing store keeps the number it began with.
        record: what identifies the writer (identity, software, device); kept in ``store.json``.

    Raises:
        StoreError: the folder belongs to another identity, or has lost its ``store.json``.
    """

    def __init__(self, folder: Path, segment_draws: int, record: Mapping[str, Any]) -> None:
        self.folder = folder
        about = folder / "store.json"
        if about.exists():
            existing = read_json(about)
            if not isinstance(existing, dict) or not {"identity", "segment_draws"} <= existing.keys():
                raise StoreError(f"{about}: is damaged: no identity or no segment_draws in it", _DAMAGE)
            if existing["identity"] != record["identity"]:
                raise StoreError(
                    f"{folder}: holds identity {existing['identity']}, not {record['identity']}", "move it away"
                )
            self.record: dict[str, Any] = existing
        elif any((folder / "commits").glob("*.json")):
            # The length of its segments is not known: writing on could overwrite what is committed.
            raise StoreError(f"{about}: is missing, though there are commits", _DAMAGE)
        else:
            self.record = {**record, "segment_draws": segment_draws}
            for name in ("commits", "checkpoints"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            write_json(about, self.record)
            sync(folder.parent)
        self.segment_draws = int(self.record["segment_draws"])

    # -- reading ---------------------------------------------------------------------------------------------------

    def commits(self) -> list[Commit]:
        """Return all markers, warmup first, by start."""
        return list(self._commits)

    @functools.cached_property
    def _commits(self) -> list[Commit]:
        found = []
        for name in self._marker_names():
            path = self.folder / "commits" / name
            value, (phase, start, stop) = read_json(path), name.removesuffix(".json").split("-")
            try:
                earlier, previous = tuple(value.get("earlier", ())), value.get("previous")
                files, checkpoint, facts = dict(value["files"]), value["checkpoint"], value["facts"]
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise StoreError(f"{path}: is damaged: {error!r}", _DAMAGE) from error
            found.append(Commit(phase, int(start), int(stop), files, checkpoint, facts, earlier, previous))
        return sorted(found, key=lambda c: (c.phase == "sample", c.start, c.stop))

    def _marker_names(self) -> set[str]:
        return {path.name for path in (self.folder / "commits").glob("*.json") if _MARKER.match(path.name)}

    def verify(self, commit: Commit) -> None:
        """Hash every file that a marker names; only of the last commit must the checkpoint still be there.

        Raises:
            StoreError: one is missing or differs; names it.
        """
        for name, expected in commit.files.items():
            path = self.folder / name
            if not path.is_file():
                if name == commit.checkpoint and commit.name != self._commits[-1].name:
                    continue
                raise StoreError(f"{path}: is missing, though {self._marker(commit)} names it", _DAMAGE)
            if hash_file(path) != expected:
                raise StoreError(f"{path}: is damaged: its sha256 is not the one in {self._marker(commit)}", _DAMAGE)

    def resume(self) -> Commit | None:
        """Return the last commit, after verifying all of them; None when there is none.

        Raises:
            StoreError: a marker is there but what it names is not, or there is a hole between markers.
        """
        last: Commit | None = None
        for commit in self._commits:
            if not commit.follows(last):
                raise StoreError(f"{self._marker(commit)}: the segment before it is missing", _DAMAGE)
            self.verify(commit)
            last = commit
        return last

    def load_checkpoint(self, commit: Commit) -> dict[str, np.ndarray]:
        """Return the leaves of the state behind a commit.

        Raises:
            StoreError: the archive is missing, damaged, or holds anything but plain arrays.
        """
        path = self.folder / commit.checkpoint
        try:
            # Opened here, and not by NumPy, which leaves the file open where it is no whole archive.
            with path.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise StoreError(f"{path}: cannot be read: {error}", _DAMAGE) from error

    # -- writing ---------------------------------------------------------------------------------------------------

    def next_count(self, start: int, wanted: int) -> int:
        """Return how many iterations to make from `start`: up to the end of the segment, or `wanted` if fewer."""
        return min(self.segment_draws - start % self.segment_draws, wanted - start)

    def commit(
        self,
        phase: str,
        start: int,
        values: Mapping[str, Mapping[str, np.ndarray]],
        checkpoint: Mapping[str, np.ndarray],
        facts: Mapping[str, Any],
    ) -> Commit:
        """Write iterations from `start` on, with the checkpoint behind them.

        Args:
            phase: ``warmup`` or ``sample``.
            start: absolute index of the first iteration; continues the last commit.
            values: group -> array name -> (iteration, chain, ...); at most one segment, ending within its shard.
            checkpoint: leaves of the state after the last iteration.
            facts: what to keep about the segment (seconds, gradients, device).

        Raises:
            StoreError: another process has committed here in the meantime.
            ValueError: the iterations do not continue the last commit or reach over the end of a segment.
        """
        stop = start + self._count(phase, start, values)
        if self._marker_names() != {c.name for c in self._commits}:
            raise StoreError(f"{self.folder}: another process commits to it", "stop one of the two jobs")
        first = start - start % self.segment_draws
        # Its shards are about to grow: were its marker still there, a crash in between would read as damage.
        old = self._withdraw_last() if start > first else None
        paths = [
            self._draws.write(f"{group}/{name}", np.swapaxes(value, 0, 1), start)
            for group, arrays in values.items()
            for name, value in arrays.items()
        ]
        paths.append(self._write_checkpoint(f"{phase}-{stop:09d}.npz", checkpoint))
        files = {str(path.relative_to(self.folder)): hash_file(path) for path in paths}
        commit = Commit(
            phase, first, stop, files, str(paths[-1].relative_to(self.folder)), {**facts, "first_new": start},
            (*old.earlier, old.facts) if old else (), self._commits[-1].name if self._commits else "",
        )  # fmt: skip
        content = dataclasses.asdict(commit)
        write_json(self._marker(commit), {k: v for k, v in content.items() if k not in ("phase", "start", "stop")})
        self._commits.append(commit)
        self._drop_old_checkpoints()
        return commit

    @functools.cached_property
    def _draws(self) -> DrawArrays:
        """Where draws are written, once what a killed writer left behind is swept."""
        for orphan in (*self.folder.glob(".store.json.*"), *(self.folder / "commits").glob(".*.json")):
            orphan.unlink()
        return DrawArrays(self.folder / "draws.zarr", self.segment_draws)

    def _count(self, phase: str, start: int, values: Mapping[str, Mapping[str, np.ndarray]]) -> int:
        """Return the number of iterations in `values`, checked against what is there."""
        last = self._commits[-1] if self._commits else None
        expected = last.stop if last is not None and last.phase == phase else 0
        if start != expected or (last is not None and last.phase == "sample" != phase):
            raise ValueError(f"{phase} from {start} does not continue {last.name if last else 'an empty store'}")
        counts = {len(value) for arrays in values.values() for value in arrays.values()}
        if len(counts) != 1 or not 0 < min(counts) <= self.segment_draws - start % self.segment_draws:
            raise ValueError(f"{phase} from {start}: {sorted(counts)} iterations, segments of {self.segment_draws}")
        return counts.pop()

    def _withdraw_last(self) -> Commit:
        """Remove the marker of the last segment, which is not full; a crash from here on repeats that segment."""
        commit = self._commits.pop()
        self._marker(commit).unlink()
        sync(self.folder / "commits")
        return commit

    def _write_checkpoint(self, name: str, leaves: Mapping[str, np.ndarray]) -> Path:
        path = self.folder / "checkpoints" / name
        with atomic_path(path) as temporary, temporary.open("wb") as handle:
            np.savez(handle, allow_pickle=False, **leaves)
        return path

    def _drop_old_checkpoints(self) -> None:
        """Keep the checkpoints of the two newest commits; the second is what is left when the newest is withdrawn."""
        kept = {self.folder / commit.checkpoint for commit in self._commits[-2:]}
        for path in (self.folder / "checkpoints").iterdir():
            if path not in kept:
                path.unlink()

    def _marker(self, commit: Commit) -> Path:
        return self.folder / "commits" / commit.name
