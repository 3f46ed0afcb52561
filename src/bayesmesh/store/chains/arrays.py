"""Write the arrays of draws of one chain group: one shard per segment, over all its chains.

Shards are staged in a folder beside the store and moved into place once their marker exists, so a shard with committed
draws stays untouched until its replacement is safe. Files are flushed together: the first flush of a journaling file
system covers the others.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
import zarr
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore, StorePath

from bayesmesh.files import read_bytes, sync_all
from bayesmesh.store.arrays import DESCRIPTION, chunk_file, chunk_shape, create_array
from bayesmesh.store.layout import CHAIN, DRAW

DRAWS = "draws.zarr"
STAGED = "staged"


class Staged(NamedTuple):
    """A staged shard: its array, its file in the store once it is published, and the array's length including it."""

    array: str
    file: Path
    stop: int


def staged_name(file: PurePath | str) -> str:
    """Return the name of a staged shard in the folder of staged shards, from its file in the store.

    >>> len(staged_name("posterior/beta/c/0/3/0"))
    32
    """
    return hashlib.sha256(PurePath(file).as_posix().encode()).hexdigest()[:32]


class DrawArrays:
    """Write draws: `stage`, `flush` and, after their commit, `publish`. This class knows nothing of commits.

    The constructor removes temporary files of a killed writer.

    Args:
        folder: the chain group's folder, with the store ``draws.zarr`` and the folder ``staged``.
        segment_draws: iterations of a shard.
    """

    def __init__(self, folder: Path, segment_draws: int) -> None:
        self.folder, self.segment_draws = folder, segment_draws
        for orphan in (folder / DRAWS).rglob("*.partial"):
            orphan.unlink(missing_ok=True)
        (folder / STAGED).mkdir(parents=True, exist_ok=True)
        self._root = zarr.open_group(str(folder / DRAWS), mode="a", zarr_format=3)
        self._arrays, self._has_new_arrays = dict[str, zarr.Array](), True
        self._groups = dict[str, zarr.Group]()

    def stage(self, name: str, value: np.ndarray, start: int) -> Staged:
        """Stage iterations from `start` on, together with the earlier ones of the same shard.

        Args:
            name: group and array, such as ``posterior/weights``.
            value: (chain, iteration, ...), ending within the shard.
            start: absolute index of the first iteration.

        Raises:
            ValueError: chains, event shape or dtype differ from those of earlier iterations.
        """
        first, stop = start - start % self.segment_draws, start + value.shape[1]
        array = self._array(name, value)
        if start > first:
            value = np.concatenate([np.asarray(array[:, first:start]), value], axis=1)
        file = chunk_file(Path(name), (0, first // self.segment_draws, *[0] * (value.ndim - 2)))
        path = self.folder / STAGED / staged_name(file)
        try:
            path.write_bytes(_encode(array, value).as_buffer_like())
        except OSError as error:
            # Errors of a full disk come from write() and name no file.
            error.filename = error.filename or str(path)
            raise
        return Staged(name, file, stop)

    def describe(self, arrays: Sequence[str]) -> dict[str, str]:
        """Return array or group -> digest of its description, for arrays, their groups and the root."""
        names = {"", *arrays, *(p.as_posix() for a in arrays for p in Path(a).parents if p.name)}
        return {name: digest_of(self.folder / DRAWS / name / DESCRIPTION) for name in sorted(names)}

    def flush(self, staged: Sequence[Staged]) -> None:
        """Flush staged shards, and the arrays into which they will move, to the disk."""
        paths = [self.folder / STAGED / staged_name(file) for _, file, _ in staged]
        folders = [Path(folder) for folder, _, _ in os.walk(self.folder / DRAWS)] if self._has_new_arrays else []
        descriptions = [about for folder in folders if (about := folder / DESCRIPTION).exists()]
        sync_all([*paths, self.folder / STAGED, *descriptions, *folders, self.folder])
        self._has_new_arrays = False

    def publish(self, staged: Sequence[Staged]) -> None:
        """Move staged shards into place and flush them; idempotent."""
        changed: dict[Path, None] = {}
        for name, file, stop in staged:
            source = self.folder / STAGED / staged_name(file)
            target, folder = self.folder / DRAWS / file, self.folder / DRAWS / name
            array = self._arrays.get(name) or self._root[name]
            assert isinstance(array, zarr.Array)
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
                above = target.parent.relative_to(folder)
                changed |= dict.fromkeys(folder / parent for parent in (above, *above.parents))
            if array.shape[1] != stop:
                # The other axes keep their lengths.
                array.resize((array.shape[0], stop, *array.shape[2:]))
                changed |= dict.fromkeys((folder / DESCRIPTION, folder))
        sync_all(changed)

    def _array(self, name: str, like: np.ndarray) -> zarr.Array:
        """Return the array of this name; create it with length 0 if necessary."""
        array = self._arrays.get(name)
        if array is None and (self.folder / DRAWS / name / DESCRIPTION).exists():
            found = self._root.get(name)
            array = found if isinstance(found, zarr.Array) else None
        if array is None:
            array = self._create(name, like)
        elif array.shards is None or array.shards[1] != self.segment_draws:
            raise ValueError(f"{name}: shards of {array.shards}, not of {self.segment_draws} iterations")
        elif (array.shape[0], *array.shape[2:], array.dtype) != (like.shape[0], *like.shape[2:], like.dtype):
            # Zarr would convert the values silently.
            raise ValueError(f"{name}: {like.dtype} {like.shape} does not continue {array.dtype} {array.shape}")
        self._arrays[name] = array
        return array

    def _create(self, name: str, like: np.ndarray) -> zarr.Array:
        group, _, leaf = name.rpartition("/")
        shape, shards = (len(like), 0, *like.shape[2:]), (len(like), self.segment_draws, *like.shape[2:])
        chunks = chunk_shape((1, *shards[1:]), like.dtype.itemsize)
        inner = [_near_divisor(s, c) for s, c in zip(shards, chunks, strict=True)]
        dims = (CHAIN, DRAW, *(f"{leaf}_dim_{i}" for i in range(len(shape) - 2)))
        self._has_new_arrays = True
        if group not in self._groups:
            self._groups[group] = self._root.require_group(group)
        return create_array(self._groups[group], leaf, shape, like.dtype, dims, chunks=inner, shards=shards)


def _encode(array: zarr.Array, value: np.ndarray) -> Buffer:
    """Return the shard that an array would write for a segment that begins with these iterations, (chain, iteration, ...)."""
    store: dict[str, Buffer] = {}
    about = {**array.metadata.to_dict(), "shape": array.shards}
    zarr.Array.from_dict(StorePath(MemoryStore(store)), about)[:, : value.shape[1]] = value
    (shard,) = store.values()
    return shard


def digest_of(about: Path) -> str:
    """Return a sha256 over a ``zarr.json`` except the number of draws, which grows; empty if it is missing or invalid.

    One shard has all chains and the whole event, so a shape with another number of them is invalid.
    """
    try:
        value = json.loads(read_bytes(about))
        shape, grid = value.pop("shape", None), value.get("chunk_grid")
        if shape is not None:
            shard = grid["configuration"]["chunk_shape"]
            if (shape[:1], shape[2:]) != (shard[:1], shard[2:]):
                return ""
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, LookupError, TypeError):
        return ""
    except (AttributeError, RecursionError):
        # Not an object, or one that is nested too deeply.
        return ""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _near_divisor(length: int, wanted: int) -> int:
    """Return the divisor of `length` whose ratio to `wanted` is nearest to 1.

    Rounding down to a divisor would give 1 for a prime number, and so a million chunks of one number each.

    >>> _near_divisor(100, 30), _near_divisor(997, 400), _near_divisor(12, 12)
    (25, 997, 12)
    """
    small = [d for d in range(1, math.isqrt(length) + 1) if length % d == 0]
    return min(*small, *(length // d for d in small), key=lambda d: abs(math.log(d / wanted)))
