"""The arrays of draws of one chain group: one shard per segment, over all its chains."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.store.arrays import chunk_file, chunk_shape, create_array
from bayesmesh.store.files import sync
from bayesmesh.store.layout import CHAIN, DRAW

__all__ = ["DrawArrays"]


class DrawArrays:
    """Writes draws, and has them on disk when it returns; what is committed is not known here.

    Opening it removes the temporary files of a writer that was killed.

    Args:
        path: the Zarr store, ``draws.zarr``.
        segment_draws: iterations of a shard.
    """

    def __init__(self, path: Path, segment_draws: int) -> None:
        self.path, self.segment_draws = path, segment_draws
        for orphan in path.rglob("*.partial"):
            orphan.unlink()
        self._root = zarr.open_group(str(path), mode="a", zarr_format=3)
        self._arrays: dict[str, zarr.Array] = {}

    def write(self, name: str, value: np.ndarray, start: int) -> Path:
        """Write iterations from `start` on, behind those before them in the same shard; return the shard's file.

        Args:
            name: group and array, such as ``posterior/weights``.
            value: (chain, iteration, ...), ending within the shard.
            start: absolute index of the first iteration.

        Raises:
            ValueError: chains, event shape or dtype are not those of the iterations before.
        """
        first, stop = start - start % self.segment_draws, start + value.shape[1]
        array = self._array(name, value, stop)
        if start > first:
            value = np.concatenate([np.asarray(array[:, first:start]), value], axis=1)
        path = chunk_file(self.path / name, (0, first // self.segment_draws, *[0] * (value.ndim - 2)))
        # What an interrupted run left there may be torn, and would be read to be merged with what is written now.
        path.unlink(missing_ok=True)
        array[:, first:stop] = value
        for written in (path, path.parent, self.path / name / "zarr.json"):
            sync(written)
        return path

    def _array(self, name: str, like: np.ndarray, stop: int) -> zarr.Array:
        """Return the array of this name, made if need be, with room for iterations up to `stop` and no more."""
        array = self._arrays.get(name) or self._root.get(name)
        shape = (like.shape[0], stop, *like.shape[2:])
        if not isinstance(array, zarr.Array):
            array = self._create(name, shape, like.dtype)
        elif (array.shape[0], *array.shape[2:], array.dtype) != (shape[0], *shape[2:], like.dtype):
            # Zarr itself would take what fits and convert it.
            raise ValueError(f"{name}: {like.dtype} {shape} does not continue {array.dtype} {array.shape}")
        elif array.shape[1] != stop:
            array.resize(shape)
        self._arrays[name] = array
        return array

    def _create(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> zarr.Array:
        group, _, leaf = name.rpartition("/")
        shards = (shape[0], self.segment_draws, *shape[2:])
        chunks = chunk_shape((1, *shards[1:]), dtype.itemsize)
        inner = [_near_divisor(s, c) for s, c in zip(shards, chunks, strict=True)]
        dims = (CHAIN, DRAW, *(f"{leaf}_dim_{i}" for i in range(len(shape) - 2)))
        parent = self._root.require_group(group)
        array = create_array(parent, leaf, shape, dtype, dims, chunks=inner, shards=shards)
        for folder in (name, group, "."):
            sync(self.path / folder / "zarr.json")
            sync(self.path / folder)
        sync(self.path.parent)
        return array


def _near_divisor(length: int, wanted: int) -> int:
    """Return the divisor of `length` that is nearest to `wanted` in ratio.

    The nearest below would not do: it is 1 for a prime number, which made a million chunks of one number each.

    >>> _near_divisor(100, 30), _near_divisor(997, 400), _near_divisor(12, 12)
    (25, 997, 12)
    """
    small = [d for d in range(1, math.isqrt(length) + 1) if length % d == 0]
    return min(*small, *(length // d for d in small), key=lambda d: abs(math.log(d / wanted)))
