"""The draws of one chain group: committed segment by segment, resumed from what is verifiably there.

A segment is a run of iterations that fills one Zarr shard of every array. It is committed in this order: shards,
fsync, checkpoint, fsync, then a marker that names every file with its sha256. What no marker covers was never
written, as far as anybody is concerned. There is one writer per group.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import chunk_shape, create_array
from bayesmesh.store.files import atomic_path, hash_file, read_json, sync, write_json
from bayesmesh.store.layout import CHAIN, DRAW

__all__ = ["ChainStore", "Commit"]

_MARKER = re.compile(r"^(warmup|sample)-(\d{9})-(\d{9})\.json$")


@dataclasses.dataclass(frozen=True)
class Commit:
    """One marker: iterations [start, stop) of a phase, the files they are in, and the checkpoint behind them."""

    phase: str
    start: int
    stop: int
    files: Mapping[str, str]
    checkpoint: str
    facts: Mapping[str, Any]


class ChainStore:
    """A chain group on disk.

    Args:
        folder: the group's folder.
        segment_draws: iterations of a whole segment; an existing store keeps the number it began with.
        record: what identifies the writer (identity, software, device); kept in ``store.json``.

    Raises:
        StoreError: the folder belongs to another identity.
    """

    def __init__(self, folder: Path, segment_draws: int, record: Mapping[str, Any]) -> None:
        self.folder = folder
        about = folder / "store.json"
        if about.exists():
            existing = read_json(about)
            if existing["identity"] != record["identity"]:
                raise StoreError(
                    f"{folder}: holds identity {existing['identity']}, not {record['identity']}", "move it away"
                )
            self.record: dict[str, Any] = existing
        else:
            self.record = {**record, "segment_draws": segment_draws}
            write_json(about, self.record)
        self.segment_draws = int(self.record["segment_draws"])
        self._root = zarr.open_group(str(folder / "draws.zarr"), mode="a", zarr_format=3)
        for orphan in (folder / "draws.zarr").rglob("*.partial"):
            orphan.unlink()

    # -- reading ---------------------------------------------------------------------------------------------------

    def commits(self) -> list[Commit]:
        """Return all markers, warmup first, by start."""
        found = []
        for path in (self.folder / "commits").glob("*.json"):
            match = _MARKER.match(path.name)
            if match:
                value = read_json(path)
                found.append(
                    Commit(match[1], int(match[2]), int(match[3]), value["files"], value["checkpoint"], value["facts"])
                )
        return sorted(found, key=lambda c: (c.phase == "sample", c.start))

    def verify(self, commit: Commit) -> None:
        """Hash every file that a marker names.

        Raises:
            StoreError: one is missing or differs; names it.
        """
        for name, expected in commit.files.items():
            path = self.folder / name
            if not path.is_file():
                raise StoreError(f"{path}: is missing, though {self._marker(commit)} names it", _DAMAGE)
            if hash_file(path) != expected:
                raise StoreError(f"{path}: is damaged: its sha256 is not the one in {self._marker(commit)}", _DAMAGE)

    def resume(self) -> Commit | None:
        """Return the last commit of the longest contiguous, verified run of markers; None when there is none.

        Raises:
            StoreError: a marker is there but what it names is not, or there is a hole between markers.
        """
        last: Commit | None = None
        for commit in self.commits():
            follows = commit.start == 0 if last is None or commit.phase != last.phase else commit.start == last.stop
            if not follows:
                raise StoreError(f"{self._marker(commit)}: the segment before it is missing", _DAMAGE)
            self.verify(commit)
            last = commit
        return last

    def load_checkpoint(self, commit: Commit) -> dict[str, np.ndarray]:
        """Return the leaves of the state behind a commit."""
        path = self.folder / commit.checkpoint
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(f"{path}: cannot be read: {error}", _DAMAGE) from error

    # -- writing ---------------------------------------------------------------------------------------------------

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
        """
        count = next(len(v) for group in values.values() for v in group.values())
        stop, shard = start + count, start // self.segment_draws
        shard_start = shard * self.segment_draws
        if stop > shard_start + self.segment_draws:
            raise ValueError(f"[{start}, {stop}) reaches over the end of segment {shard}")
        superseded = [c for c in self.commits() if c.phase == phase and c.start == shard_start]
        for old in superseded:
            # Its shards are about to grow: were it still a marker, a crash in between would read as damage.
            self._marker(old).rename(self._marker(old).with_suffix(".superseded"))
        files: dict[str, str] = {}
        for group, arrays in values.items():
            for name, value in arrays.items():
                path = self._write_shard(group, name, np.swapaxes(value, 0, 1), start, shard_start)
                files[str(path.relative_to(self.folder))] = hash_file(path)
        name = f"checkpoints/{phase}-{stop:09d}.npz"
        with atomic_path(self.folder / name) as temporary, temporary.open("wb") as handle:
            np.savez(handle, **checkpoint)  # type: ignore[arg-type]
        files[name] = hash_file(self.folder / name)
        commit = Commit(phase, shard_start, stop, files, name, {**facts, "first_new": start})
        write_json(self._marker(commit), {"files": files, "checkpoint": name, "facts": commit.facts})
        for old in superseded:
            self._marker(old).with_suffix(".superseded").unlink(missing_ok=True)
        self._drop_old_checkpoints(commit)
        return commit

    def next_count(self, start: int, wanted: int) -> int:
        """Return how many iterations to make from `start`: up to the end of the segment, or `wanted` if fewer."""
        return min(self.segment_draws - start % self.segment_draws, wanted - start)

    def _write_shard(self, group: str, name: str, value: np.ndarray, start: int, shard_start: int) -> Path:
        """Write (chain, iteration, ...) behind what the shard already holds; returns the shard's file."""
        array = self._array(group, name, value, start + value.shape[1])
        if start > shard_start:
            value = np.concatenate([np.asarray(array[:, shard_start:start]), value], axis=1)
        array[:, shard_start : shard_start + value.shape[1]] = value
        shard = shard_start // self.segment_draws
        path = self.folder / "draws.zarr" / group / name / "c" / "/".join(["0", str(shard)] + ["0"] * (value.ndim - 2))
        sync(path)
        sync(path.parent)
        return path

    def _array(self, group: str, name: str, like: np.ndarray, stop: int) -> zarr.Array:
        parent = self._root.require_group(group)
        existing = parent.get(name)
        if isinstance(existing, zarr.Array):
            if existing.shape[1] < stop:
                existing.resize((existing.shape[0], stop, *existing.shape[2:]))
            return existing
        shards = (like.shape[0], self.segment_draws, *like.shape[2:])
        chunks = chunk_shape((1, *shards[1:]), like.dtype.itemsize)
        inner = tuple(c if s % c == 0 else _divisor(s, c) for s, c in zip(shards, chunks, strict=True))
        dims = (CHAIN, DRAW, *(f"{name}_dim_{i}" for i in range(like.ndim - 2)))
        return create_array(
            parent, name, (like.shape[0], stop, *like.shape[2:]), like.dtype, dims, chunks=inner, shards=shards
        )

    def _marker(self, commit: Commit) -> Path:
        return self.folder / "commits" / f"{commit.phase}-{commit.start:09d}-{commit.stop:09d}.json"

    def _drop_old_checkpoints(self, newest: Commit) -> None:
        """Keep the checkpoints of the two newest commits, and say so in the markers of the others."""
        older = self.commits()[:-2]
        for commit in older:
            path = self.folder / commit.checkpoint
            if commit.checkpoint in commit.files:
                kept = {k: v for k, v in commit.files.items() if k != commit.checkpoint}
                write_json(
                    self._marker(commit), {"files": kept, "checkpoint": commit.checkpoint, "facts": dict(commit.facts)}
                )
                path.unlink(missing_ok=True)


def _divisor(length: int, at_most: int) -> int:
    """Return the largest divisor of `length` that is at most `at_most`."""
    return next(d for d in range(min(length, at_most), 0, -1) if length % d == 0)


_DAMAGE = "move the chain's folder away to start it afresh, or restore the file"
