"""Create and read Zarr arrays with checksums, where missing chunks are errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import zarr
from numpy.typing import DTypeLike
from zarr.codecs import ZstdCodec

from bayesmesh.errors import StoreError
from bayesmesh.files import JSON, MISSING_REMEDY

# Write chunks that equal the fill value, so that a missing file always means missing data, and reading it is an error.
# The setting also covers arrays that were opened rather than created.
zarr.config.set({"array.write_empty_chunks": True, "array.read_missing_chunks": False})

DESCRIPTION = "zarr.json"
"""File with the description of an array or a group."""

CHUNK_BYTES = 4 * 2**20
"""Target size of an uncompressed chunk, in bytes."""


def chunk_shape(shape: Sequence[int], itemsize: int, aimed_bytes: int = CHUNK_BYTES) -> tuple[int, ...]:
    """Return the shape of a chunk of about `aimed_bytes`, splitting the leading axes first.

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
    """Return the file of one chunk, or of one shard, of the array in folder `array`.

    >>> chunk_file(Path("beta"), (0, 3, 0)).as_posix()
    'beta/c/0/3/0'
    """
    return array.joinpath("c", *map(str, index))


def create_array(
    group: zarr.Group, name: str, shape: Sequence[int], dtype: DTypeLike, dims: Sequence[str], *,
    chunks: Sequence[int] | None = None, shards: Sequence[int] | None = None, attributes: Mapping[str, JSON] | None = None,
) -> zarr.Array:  # fmt: skip
    """Create an array whose chunks have checksums and are written even if they equal the fill value.

    Raises:
        StoreError: the dtype is neither numeric nor boolean: object codecs can run code, and string codecs are not
            standardised.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufc":
        raise StoreError(f"array '{name}': dtype {dtype} cannot be stored; numbers and booleans only")
    above, _, leaf = name.rpartition("/")
    return (group.require_group(above) if above else group).create_array(
        leaf,
        shape=tuple(shape),
        dtype=dtype,
        chunks=tuple(chunks or chunk_shape(shape, dtype.itemsize)),
        shards=tuple(shards) if shards else None,
        compressors=[ZstdCodec(level=1, checksum=True)],
        attributes=dict(attributes or {}),
        dimension_names=tuple(dims),
    )


def write_array(group: zarr.Group, name: str, values: np.ndarray, dims: Sequence[str]) -> None:
    """Create an array of the values' shape and dtype, and fill it."""
    create_array(group, name, values.shape, values.dtype, dims)[...] = values


class RowWriter:
    """Appends rows to an array in whole shards, so that each shard is written once; an array that is too short grows.

    Args:
        array: the array, (row, ...).
        shard_rows: rows of a shard.
    """

    def __init__(self, array: zarr.Array, shard_rows: int) -> None:
        self._array, self._size, self._start = array, shard_rows, 0
        self._waiting: list[np.ndarray] = []

    def append(self, rows: np.ndarray) -> None:
        """Append rows, and write those that fill shards."""
        self._waiting.append(rows)
        count = sum(map(len, self._waiting))
        if count >= self._size:
            self._flush(count // self._size * self._size)

    def close(self) -> None:
        """Write the rows that do not fill a shard."""
        self._flush(sum(map(len, self._waiting)))

    def _flush(self, count: int) -> None:
        if count:
            rows, stop = np.concatenate(self._waiting), self._start + count
            if self._array.shape[0] < stop:
                self._array.resize((stop, *rows.shape[1:]))
            self._array[self._start : stop] = rows[:count]
            self._waiting, self._start = [rows[count:]], stop


def write_texts(group: zarr.Group, name: str, texts: Sequence[str], dims: Sequence[str]) -> None:
    """Write names, such as those of levels."""
    create_texts(group, name, len(texts), dims, len(texts))[...] = np.array(texts, np.dtypes.StringDType())


def create_texts(group: zarr.Group, name: str, length: int, dims: Sequence[str], chunk: int) -> zarr.Array:
    """Create an array of variable-length UTF-8, which xarray reads as strings."""
    return group.create_array(
        name, shape=(length,), dtype="string", chunks=(max(1, chunk),),
        compressors=[ZstdCodec(level=1, checksum=True)], dimension_names=tuple(dims),
    )  # fmt: skip


def open_group(path: Path, mode: Literal["r", "r+", "a", "w", "w-"] = "r") -> zarr.Group:
    """Open a Zarr v3 group; reading a missing chunk is an error, not a fill value.

    Raises:
        StoreError: there is no Zarr group at `path`.
    """
    try:
        return zarr.open_group(str(path), mode=mode, zarr_format=3)
    except (FileNotFoundError, zarr.errors.GroupNotFoundError) as error:
        raise StoreError(f"{path}: no Zarr group there", MISSING_REMEDY) from error


def consolidate(root: zarr.Group) -> None:
    """Gather the metadata of all groups, with which xarray opens them faster; other readers ignore it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata", category=zarr.errors.ZarrUserWarning)
        zarr.consolidate_metadata(root.store)


def dimension_names(array: zarr.Array) -> tuple[str, ...]:
    """Return the names of an array's dimensions; empty if it has none."""
    return tuple(map(str, getattr(array.metadata, "dimension_names", None) or ()))


def read_part(array: zarr.Array, *part: slice) -> np.ndarray:
    """Return a part of an array.

    Raises:
        StoreError: a chunk is missing, or its checksum or size is wrong.
    """
    try:
        return np.asarray(array[part if part else ...])
    except (ValueError, RuntimeError, KeyError, OSError) as error:  # Zarr raises these for missing and damaged chunks.
        raise StoreError(
            f"{array.store_path}: cannot be read, a chunk is missing or damaged: {error}",
            "run `bayesmesh verify` to list the damage; assemble a damaged posterior again",
        ) from error
