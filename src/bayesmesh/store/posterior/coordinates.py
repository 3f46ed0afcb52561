"""Read chosen coordinates of a posterior without loading all of it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import zarr
from jaxtyping import Int, Shaped

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import dimension_names, read_part
from bayesmesh.store.layout import CHAIN, DRAW

_FEWEST_PARTS = 3
"""Number of blocks from which writing and reading a file costs less than decompressing the array once per block."""


def drawn_arrays(group: zarr.Group) -> dict[str, zarr.Array]:
    """Return the arrays of a group with dimensions (chain, draw, ...), sorted by name, without dimension labels.

    Raises:
        StoreError: an array has chains and draws on other axes.
    """
    found = {}
    for name, array in sorted(group.arrays()):
        dims = dimension_names(array)
        if dims[:2] == (CHAIN, DRAW):
            found[name] = array
        elif not dims or ({CHAIN, DRAW} & set(dims) and len(dims) > 1):
            raise StoreError(
                f"{group.store_path}: array '{name}' has dimensions {dims}, not ({CHAIN}, {DRAW}, ...)",
                "assemble the posterior again",
            )
    return found


def event_size(array: zarr.Array) -> int:
    """Return the number of coordinates of an array with dimensions (chain, draw, ...); 1 for a scalar."""
    return math.prod(array.shape[2:])


def choose_coordinates(total: int, most: int) -> Int[np.ndarray, " n"]:
    """Return flat positions of at most `most` of `total` coordinates, evenly spaced, ends included, ascending.

    >>> choose_coordinates(10, 4), choose_coordinates(3, 4)
    (array([0, 3, 6, 9]), array([0, 1, 2]))
    """
    return np.unique(np.round(np.linspace(0, total - 1, min(total, most))).astype(np.int64))


def coordinate_indices(positions: Int[np.ndarray, " n"], shape: tuple[int, ...]) -> list[str]:
    """Return the indices of coordinates in their array, as in summary.csv.

    >>> coordinate_indices(np.array([0, 23]), (4, 8)), coordinate_indices(np.array([0]), ())
    (['0,0', '2,7'], [''])
    """
    return _joined(positions, shape, [None] * len(shape)) if shape else [""] * len(positions)


def coordinate_places(name: str, positions: Int[np.ndarray, " n"], shape: tuple[int, ...]) -> list[str]:
    """Return the names of coordinates of an array, with their indices.

    >>> coordinate_places("a", np.array([3]), (2, 2)), coordinate_places("b", np.array([0]), ())
    (['a[1,1]'], ['b'])
    """
    return [f"{name}[{index}]" if index else name for index in coordinate_indices(positions, shape)]


def coordinate_labels(
    positions: Int[np.ndarray, " n"], shape: tuple[int, ...], labels: Sequence[Sequence[str] | None]
) -> list[str]:
    """Return indices with names in place of numbers on the axes that have them; empty texts if none has.

    Args:
        positions: positions in the flattened event.
        shape: shape of the event.
        labels: for each axis, the names of its entries, or None.

    >>> coordinate_labels(np.array([0, 3]), (2, 2), [["ash", "elm"], None])
    ['ash,0', 'elm,1']
    """
    is_named = any(names is not None for names in labels)
    return _joined(positions, shape, labels) if is_named else [""] * len(positions)


def _joined(
    positions: Int[np.ndarray, " n"], shape: tuple[int, ...], labels: Sequence[Sequence[str] | None]
) -> list[str]:
    axes = []
    for names, axis in zip(labels, np.unravel_index(positions, shape), strict=True):
        axes.append(axis.astype(str).tolist() if names is None else [names[i] for i in axis.tolist()])
    return list(map(",".join, zip(*axes, strict=True)))


def coordinate_blocks(
    array: zarr.Array, positions: Int[np.ndarray, " n"], block_bytes: int, scratch: Path | None = None
) -> Iterator[tuple[slice, Shaped[np.ndarray, "chain draw coordinate"]]]:
    """Yield draws of chosen coordinates, block by block.

    A chunk holds all coordinates of a few draws. An array of many blocks is therefore read once and reordered by block in a
    temporary file of its size. An array of a few blocks, or of which only a part is chosen, is read once per block.

    Args:
        array: dimensions (chain, draw, ...).
        positions: flat positions in the event, ascending.
        block_bytes: limit on a block, and on the data read at a time for it, in bytes; at least one coordinate and one
            chunk.
        scratch: folder for the temporary file, which is unnamed, so that a killed process leaves nothing behind; None for no
            file.

    Yields:
        The part of `positions` and its draws, in the array's dtype.
    """
    num_chains, num_draws = array.shape[:2]
    size = max(1, block_bytes // max(1, num_chains * num_draws * array.dtype.itemsize))
    parts = [slice(start, min(start + size, len(positions))) for start in range(0, len(positions), size)]
    if scratch is not None and len(parts) >= _FEWEST_PARTS and len(positions) == event_size(array):
        yield from _reordered(array, parts, block_bytes, scratch)
        return
    for part in parts:
        yield part, _read(array, positions[part], block_bytes)


def named_coordinates(
    arrays: Mapping[str, zarr.Array], most: int, block_bytes: int
) -> Iterator[tuple[str, Shaped[np.ndarray, "chain draw"]]]:
    """Yield name and draws of coordinates of all arrays, at most about `most` in all; the name has the index, if there is one."""
    share = max(1, most // len(arrays))
    for name, array in arrays.items():
        positions = choose_coordinates(event_size(array), share)
        for part, draws in coordinate_blocks(array, positions, block_bytes):
            places = coordinate_places(name, positions[part], array.shape[2:])
            yield from zip(places, np.moveaxis(draws, -1, 0), strict=True)


def _reordered(
    array: zarr.Array, parts: Sequence[slice], slab_bytes: int, scratch: Path
) -> Iterator[tuple[slice, Shaped[np.ndarray, "chain draw coordinate"]]]:
    """Yield all draws of parts of the coordinates, after one pass through the array."""
    num_chains, num_draws, *event = array.shape
    row_bytes = num_chains * num_draws * array.dtype.itemsize
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        for chains, draws in _slabs(array, math.prod(event), slab_bytes):
            slab = read_part(array, chains, draws).reshape(chains.stop - chains.start, draws.stop - draws.start, -1)
            for part in parts:
                piece = np.ascontiguousarray(slab[:, :, part])
                for number, of_chain in enumerate(piece, chains.start):
                    first_draw = number * num_draws + draws.start
                    file.seek(part.start * row_bytes + first_draw * (part.stop - part.start) * array.dtype.itemsize)
                    file.write(memoryview(of_chain).cast("B"))
        for part in parts:
            block = np.empty((num_chains, num_draws, part.stop - part.start), dtype=array.dtype)
            file.seek(part.start * row_bytes)
            file.readinto(memoryview(block).cast("B"))
            yield part, block


def _read(
    array: zarr.Array, positions: Int[np.ndarray, " coordinate"], slab_bytes: int
) -> Shaped[np.ndarray, "chain draw coordinate"]:
    """Return draws of some coordinates, reading each chunk once."""
    num_chains, num_draws, *event = array.shape
    chosen = np.empty((num_chains, num_draws, len(positions)), dtype=array.dtype)
    if not event:
        chosen[:, :, 0] = read_part(array, slice(None), slice(None))
        return chosen
    if len(positions) == math.prod(event):
        for chains, draws in _slabs(array, len(positions), slab_bytes):
            slab = read_part(array, chains, draws)
            chosen[chains, draws] = slab.reshape(*slab.shape[:2], -1)
        return chosen
    index = np.stack(np.unravel_index(positions, tuple(event)), axis=1)
    chunk = index // np.array(array.chunks[2:])
    boxes, box_of = np.unique(chunk, axis=0, return_inverse=True)
    for box in range(len(boxes)):
        members = np.flatnonzero(box_of.reshape(-1) == box)
        low, high = index[members].min(axis=0), index[members].max(axis=0) + 1
        window = tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True))
        inner = np.ravel_multi_index(tuple((index[members] - low).T), tuple(high - low))
        for chains, draws in _slabs(array, int(np.prod(high - low)), slab_bytes):
            slab = read_part(array, chains, draws, *window)
            chosen[chains, draws, members] = slab.reshape(*slab.shape[:2], -1)[:, :, inner]
    return chosen


def _slabs(array: zarr.Array, window_size: int, slab_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Yield ranges of chains and draws of whole chunks and, if one chunk allows it, at most `slab_bytes`."""
    num_chains, num_draws = array.shape[:2]
    chain_chunk, draw_chunk = array.chunks[:2]
    chunk_bytes = chain_chunk * draw_chunk * window_size * array.dtype.itemsize
    num_draw_chunks = max(1, slab_bytes // chunk_bytes)
    # If a slab ends within a shard, the index of the shard is read twice, and the slab takes twice as long.
    in_shard = array.shards[1] // draw_chunk if array.shards is not None else 1
    if num_draw_chunks >= in_shard:
        num_draw_chunks -= num_draw_chunks % in_shard
    else:
        num_draw_chunks = max(n for n in range(1, num_draw_chunks + 1) if in_shard % n == 0)
    draw_step = min(num_draw_chunks, math.ceil(num_draws / draw_chunk)) * draw_chunk
    chain_step = max(1, slab_bytes // (chunk_bytes * (draw_step // draw_chunk))) * chain_chunk
    for chain in range(0, num_chains, chain_step):
        for draw in range(0, num_draws, draw_step):
            yield slice(chain, min(chain + chain_step, num_chains)), slice(draw, min(draw + draw_step, num_draws))
