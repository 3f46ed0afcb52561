"""Move the part of an array on this process's devices to the host and back.

With one process, the part is the whole array. With several, it is one box, because a process has whole columns of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jax
import numpy as np
from jax.sharding import Sharding

Index = tuple[slice, ...]


def to_host(array: jax.Array) -> np.ndarray:
    """Return this process's part of an array; the whole array if it is replicated."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    shards = array.addressable_shards
    starts, stops = _box([s.index for s in shards], array.shape)
    part = np.empty([b - a for a, b in zip(starts, stops, strict=True)], array.dtype)
    for shard in shards:
        part[_within(shard.index, starts, array.shape)] = shard.data
    return part


def to_device(part: np.ndarray, at: Sharding, shape: Sequence[int]) -> jax.Array:
    """Return the array of `shape` to which every process contributes its part.

    Raises:
        ValueError: the part does not have the shape of `part_shape`.
    """
    shape = tuple(shape)
    if part.shape != part_shape(at, shape):
        raise ValueError(f"a part of shape {part.shape}, not {part_shape(at, shape)}")
    starts, _ = _box(at.addressable_devices_indices_map(shape).values(), shape)
    return jax.make_array_from_callback(shape, at, lambda index: part[_within(index, starts, shape)])


def part_shape(at: Sharding, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of this process's part of an array with this sharding."""
    starts, stops = _box(at.addressable_devices_indices_map(tuple(shape)).values(), shape)
    return tuple(b - a for a, b in zip(starts, stops, strict=True))


def _box(indices: Iterable[Index | None], shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the lower and upper bounds, by axis, of the smallest box around some shards."""
    bounds = [[s.indices(n)[:2] for s, n in zip(index or (), shape, strict=True)] for index in indices]
    axes = list(zip(*bounds, strict=True))
    return [min(a for a, _ in axis) for axis in axes], [max(b for _, b in axis) for axis in axes]


def _within(index: Index | None, starts: Sequence[int], shape: Sequence[int]) -> Index:
    """Return where a shard lies within the box that begins at `starts`."""
    bounds = [s.indices(n)[:2] for s, n in zip(index or (), shape, strict=True)]
    return tuple(slice(a - start, b - start) for (a, b), start in zip(bounds, starts, strict=True))
