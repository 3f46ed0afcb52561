"""Zarr arrays as this project writes them: checksummed, whole, and with missing chunks as errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec

from bayesmesh.errors import StoreError

__all__ = ["CHUNK_BYTES", "chunk_file", "chunk_shape", "create_array", "open_group", "read_part", "write_array"]

# A chunk that equals the fill value is written all the same, also by an array that was opened and not created: only
# then does a missing file mean missing data, and reading one is an error.
zarr.config.set({"array.write_empty_chunks": True, "array.read_missing_chunks": False})

CHUNK_BYTES = 4 * 2**20
"""Aimed size of an uncompressed chunk, in bytes."""


def chunk_shape(shape: Sequence[int], itemsize: int, aimed_bytes: int = CHUNK_BYTES) -> tuple[int, ...]:
    """Return a chunk shape near `aimed_bytes` that splits the leading axes first.

    >>> chunk_shape((60000, 784), 1)
    (5349, 784)
    """
    chunk = [max(1, n) for n in shape]
    for axis in range(len(chunk)):
        excess = math.prod(chunk) * itemsize / aimed_bytes
        if excess <= 1:
            break
        chunk[axis] = max(1, int(chunk[axis] / excess))
    return tuple(chunk)


def chunk_file(array: Path, index: Sequence[int]) -> Path:
    """Return the file of one chunk, or of one shard, of the array in a folder.

    >>> chunk_file(Path("beta"), (0, 3, 0)).as_posix()
    'beta/c/0/3/0'
    """
    return array.joinpath("c", *map(str, index))


def create_array(
    group: zarr.Group,
    name: str,
    shape: Sequence[int],
    dtype: Any,
    dims: Sequence[str],
    *,
    chunks: Sequence[int] | None = None,
    shards: Sequence[int] | None = None,
    attributes: dict[str, Any] | None = None,
) -> zarr.Array:
    """Create an array whose chunks carry a checksum and are written even when they equal the fill value.

    Raises:
        StoreError: an object or string dtype; those would need a codec that can run code or is not in the standard.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc":
        raise StoreError(f"array '{name}': dtype {dtype} cannot be stored; numbers and booleans only")
    return group.create_array(
        name,
        shape=tuple(shape),
        dtype=dtype,
        chunks=tuple(chunks) if chunks is not None else chunk_shape(shape, dtype.itemsize),
        shards=tuple(shards) if shards is not None else None,
        compressors=[ZstdCodec(level=1, checksum=True)],
        dimension_names=tuple(dims),
        attributes=attributes or {},
    )


def write_array(
    group: zarr.Group, name: str, values: np.ndarray, dims: Sequence[str], attributes: dict[str, Any] | None = None
) -> zarr.Array:
    """Create an array of the values' shape and dtype, and fill it."""
    array = create_array(group, name, values.shape, values.dtype, dims, attributes=attributes)
    array[...] = values
    return array


def open_group(path: Path, mode: str = "r") -> zarr.Group:
    """Open a Zarr v3 group; in reading, a missing chunk is an error and not a fill value.

    Raises:
        StoreError: there is no Zarr group at `path`.
    """
    try:
        return zarr.open_group(str(path), mode=mode, zarr_format=3)  # type: ignore[arg-type]
    except (FileNotFoundError, zarr.errors.GroupNotFoundError) as error:
        raise StoreError(f"{path}: no Zarr group there", "run the stage that writes it again") from error


def read_part(array: zarr.Array, *part: slice) -> np.ndarray:
    """Return a part of an array.

    Raises:
        StoreError: a chunk is missing, or its checksum or size is wrong.
    """
    try:
        return np.asarray(array[part if part else ...])
    except (ValueError, RuntimeError, KeyError, OSError) as error:  # what Zarr raises for missing and damaged chunks
        raise StoreError(
            f"{array.store_path}: cannot be read, a chunk is missing or damaged: {error}",
            "see what `bayesmesh verify` finds; assemble a damaged posterior again",
        ) from error
