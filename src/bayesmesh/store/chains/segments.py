"""Store the draws of one chain group: commit segment by segment, resume from verified commits.

A segment is a range of iterations that fills one Zarr shard of every array. A commit writes, in this order: staged
shards, fsync, checkpoint, fsync, a marker that lists every file with its sha256. Then the shards move into place.
Iterations without a marker count as never written; iterations with a marker are safe, in place or staged. Each chain
group has one writer.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.files import hash_file, sync
from bayesmesh.store.chains.arrays import DRAWS, STAGED, DrawArrays, Staged, staged_name
from bayesmesh.store.chains.checkpoints import Checkpoints
from bayesmesh.store.chains.damage import find_damage
from bayesmesh.store.chains.manifests import missing_draws, read_manifest
from bayesmesh.store.chains.markers import (
    CHECKPOINTS,
    DAMAGE_REMEDY,
    Commit,
    Facts,
    marker_names,
    read_about,
    read_markers,
    write_marker,
)
from bayesmesh.store.records.checked import read_checked, write_checked

IDENTITY_REMEDY = "delete it and run the sample stage again, which restores it from the chains beside it"
"""Remedy for a damaged ``identity.json``."""


def segment_draws_of(identity: Path) -> int | None:
    """Return the length of a segment from the chain groups in an identity's folder; None without groups.

    Raises:
        StoreError: the record of a group is damaged.
    """
    records = sorted(identity.glob("group-*/store.json"))
    return int(read_about(records[0].parent)["segment_draws"]) if records else None


class ChainStore:
    """A chain group on disk.

    Markers are read once and then kept in memory. Nothing is written or deleted before `begin_writing`, so readers may
    open a store that is being written.

    Args:
        folder: the group's folder.
        segment_draws: iterations of a whole segment; an existing store keeps its number.
        record: identity, software and device of the writer; stored in ``store.json``.
        fence: called before every commit; raises if this process is no longer the writer.

    Attributes:
        is_new: whether this object created the store.

    Raises:
        StoreError: the folder belongs to another identity, or its ``store.json`` is lost or damaged.
    """

    def __init__(
        self, folder: Path, segment_draws: int, record: Mapping[str, object], fence: Callable[[], None] = lambda: None
    ) -> None:
        self.folder, self._fence, self._checkpoints = folder, fence, Checkpoints(folder)
        about = folder / "store.json"
        self.is_new = not about.exists()
        if not self.is_new:
            self.record = self._open_record(about, record)
        elif marker_names(folder):
            # Without the length of segments, continuing could overwrite committed draws.
            raise StoreError(f"{about}: is missing, though there are commits", DAMAGE_REMEDY)
        else:
            self.record = {**record, "segment_draws": segment_draws}
            for name in ("commits", CHECKPOINTS):
                (folder / name).mkdir(parents=True, exist_ok=True)
            write_checked(about, self.record)
            sync(folder.parent)
        self.segment_draws = int(self.record["segment_draws"])

    def _open_record(self, about: Path, record: Mapping[str, object]) -> dict[str, Any]:
        """Return the content of ``store.json`` after comparing it with ``identity.json`` and with the writer's record."""
        existing, shared = read_about(self.folder), self.folder.parent / "identity.json"
        segment_draws = existing["segment_draws"]
        length = read_checked(shared, IDENTITY_REMEDY).get("segment_draws") if shared.exists() else segment_draws
        if segment_draws != length:
            message = f"{about}: is damaged: segments of {segment_draws} iterations, {length} in {shared}"
            raise StoreError(message, DAMAGE_REMEDY)
        if "environment" in record and "environment" not in existing:
            raise StoreError(f"{about}: is damaged: no environment in it", DAMAGE_REMEDY)
        if (there := existing["identity"]) != (wanted := record["identity"]):
            raise StoreError(f"{self.folder}: holds identity {there}, not {wanted}", "move it away")
        return existing

    # -- reading ---------------------------------------------------------------------------------------------------

    def commits(self) -> list[Commit]:
        """Return all markers, warmup first, by start."""
        return list(self._commits)

    @functools.cached_property
    def _commits(self) -> list[Commit]:
        return read_markers(self.folder)

    def damage(self) -> Iterator[str]:
        """Yield one line per deviation from the markers: a missing or changed file, a gap."""
        yield from find_damage(self.folder, self.segment_draws, self._commits)

    def resume(self) -> Commit | None:
        """Return the last commit after verifying all of them; None without commits.

        Raises:
            StoreError: a file of a marker is missing or damaged, or there is a gap between markers.
        """
        for line in self.damage():
            raise StoreError(line, DAMAGE_REMEDY)
        return self._commits[-1] if self._commits else None

    def reconcile_manifest(self, path: Path) -> None:
        """Compare the group's manifest with the store, or delete it if the store is new; one of another identity stays.

        The manifest of a new store describes chains that were moved away, not those sampled now.

        Raises:
            StoreError: the manifest is damaged, or records more draws than the markers.
        """
        if not path.exists() or (manifest := read_manifest(path)).identity != self.record["identity"]:
            return
        if self.is_new:
            path.unlink(missing_ok=True)
        elif line := missing_draws(path, manifest, self.folder, self._commits[-1] if self._commits else None):
            raise StoreError(line, DAMAGE_REMEDY)

    def load_checkpoint(self, commit: Commit) -> dict[str, np.ndarray]:
        """Return the leaves of the state after a commit.

        Raises:
            StoreError: a file is missing, damaged, or contains anything but plain arrays.
        """
        return self._checkpoints.read(commit)

    # -- writing ---------------------------------------------------------------------------------------------------

    def next_count(self, start: int, wanted: int) -> int:
        """Return how many iterations to make from `start`: to the end of the segment or to `wanted`, whichever is nearer."""
        return min(self.segment_draws - start % self.segment_draws, wanted - start)

    def begin_writing(self) -> Commit | None:
        """Return the last commit, verified as by `resume`; settle it, and delete leftovers if its writer was killed."""
        last = self.resume()
        committed = {staged_name(file): digest for file, digest in last.shards.items()} if last is not None else {}
        for path in [*(self.folder / STAGED).glob("*")]:
            if committed.get(path.name) != hash_file(path):
                path.unlink()
        for orphan in (*self.folder.glob(".store.json.*"), *(self.folder / "commits").glob(".*.json")):
            orphan.unlink()
        self.settle()
        return last

    def commit(
        self, phase: str, start: int, values: Mapping[str, Mapping[str, np.ndarray]],
        checkpoint: Mapping[str, np.ndarray], facts: Facts, *, count: int | None = None, is_final: bool = True,
    ) -> Commit:  # fmt: skip
        """Commit the iterations from `start` on, with the checkpoint after them.

        Args:
            phase: ``warmup`` or ``sample``.
            start: absolute index of the first iteration; continues the last commit.
            values: group -> array name -> (iteration, chain, ...); at most one segment, ending within its shard.
            checkpoint: leaves of the state after the last iteration.
            facts: facts about the iterations (seconds, gradients, device).
            count: number of iterations; required if `values` is empty.
            is_final: settle immediately. Otherwise the commit can be withdrawn until `settle` is called, which must
                precede the next commit.

        Raises:
            StoreError: another process has committed here in the meantime.
            ValueError: the iterations do not continue the last commit, or exceed the end of a segment.
        """
        stop = start + self._count(phase, start, values, count)
        self._fence()
        if marker_names(self.folder) != {c.name for c in self._commits}:
            raise StoreError(f"{self.folder}: another process commits to it", "stop one of the two jobs")
        first = start - start % self.segment_draws
        old = self._commits[-1] if start > first else None
        before = self._commits[: -1 if old else None]
        arrays = {f"{group}/{name}": value for group, named in values.items() for name, value in named.items()}
        staged = [self._draws.stage(name, np.swapaxes(value, 0, 1), start) for name, value in arrays.items()]
        self._draws.flush(staged)
        state = self._checkpoints.write(f"{phase}-{stop:09d}.npz", checkpoint)
        files = {f"{DRAWS}/{s.file.as_posix()}": hash_file(self.folder / STAGED / staged_name(s.file)) for s in staged}
        commit = Commit(
            phase, first, stop, {**files, **state}, list(state)[-1], {**facts, "first_new": start},
            old.all_facts if old else (), before[-1].name if before else "", old.name if old else "",
            self._draws.describe([s.array for s in staged]),
        )  # fmt: skip
        self._fence()
        write_marker(self.folder, commit)
        self._commits[:] = [*before, commit]
        if is_final:
            self.settle()
        return commit

    def settle(self) -> None:
        """Move the shards of the last commit into place and delete replaced files; idempotent."""
        if self._commits:
            last = self._commits[-1]
            self._draws.publish([Staged(name.rpartition("/c/")[0], Path(name), last.stop) for name in last.shards])
        self._tidy()

    def withdraw(self) -> None:
        """Withdraw the last commit before it is settled; the previous or replaced one becomes the last again."""
        marker = self.folder / "commits" / self._commits[-1].name
        marker.unlink()
        sync(marker.parent)
        del self._commits

    def end_writing(self) -> None:
        """Remove the folder of staged shards, which is then empty."""
        shutil.rmtree(self.folder / STAGED, ignore_errors=True)
        self.__dict__.pop("_draws", None)

    @functools.cached_property
    def _draws(self) -> DrawArrays:
        return DrawArrays(self.folder, self.segment_draws)

    def _count(self, phase: str, start: int, values: Mapping[str, Mapping[str, np.ndarray]], count: int | None) -> int:
        """Return the number of iterations after checking that they continue the last commit."""
        last = self._commits[-1] if self._commits else None
        expected = last.stop if last is not None and last.phase == phase else 0
        if start != expected or (last is not None and last.phase == "sample" != phase):
            raise ValueError(f"{phase} from {start} does not continue {last.name if last else 'an empty store'}")
        counts = {len(value) for arrays in values.values() for value in arrays.values()}
        counts |= set() if count is None else {count}
        if len(counts) != 1 or not 0 < min(counts) <= self.segment_draws - start % self.segment_draws:
            raise ValueError(f"{phase} from {start}: {sorted(counts)} iterations, segments of {self.segment_draws}")
        return counts.pop()

    def _tidy(self) -> None:
        """Remove replaced markers, leftovers of a killed writer's marker, and all checkpoints except those of the two newest commits."""
        left = {path.name for path in (self.folder / "commits").glob(".*.partial")}
        if void := left | marker_names(self.folder) - {c.name for c in self._commits}:
            for name in void:
                (self.folder / "commits" / name).unlink()
            sync(self.folder / "commits")
        self._checkpoints.keep(self._commits[-2:])
