"""What is damaged or missing is an error, and never a number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from bayesmesh.store.arrays import chunk_file, chunk_shape, create_array, open_group, write_array

# What Zarr and its codecs raise on a wrong checksum, a missing or a shortened file.
DAMAGE = (RuntimeError, ValueError, KeyError, OSError)


@pytest.fixture
def group(tmp_path: Path) -> zarr.Group:
    return open_group(tmp_path / "a.zarr", "w")


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_every_flipped_bit_of_the_data_is_noticed(tmp_path: Path, group: zarr.Group, dtype: str, shards: Any) -> None:
    values = (np.arange(24).reshape(4, 6) % 7).astype(dtype)
    create_array(group, "x", values.shape, dtype, ("row", "column"), chunks=(2, 3), shards=shards)[...] = values
    path = chunk_file(tmp_path / "a.zarr" / "x", (0, 0))
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            found = np.asarray(open_group(tmp_path / "a.zarr")["x"][...])
        except DAMAGE:
            continue
        # A bit of the frame's header that decodes to the same numbers does no harm; a wrong number would.
        np.testing.assert_array_equal(found, values, err_msg=f"byte {position}")
    path.write_bytes(whole)
    np.testing.assert_array_equal(open_group(tmp_path / "a.zarr")["x"][...], values)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64"])
@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("shards", [None, (2, 4)])
def test_missing_chunk_is_an_error(tmp_path: Path, dtype: str, value: int, shards: Any) -> None:
    """Also one that equals the fill value, written through an array that was opened and not created."""
    group = open_group(tmp_path / "a.zarr", "w")
    create_array(group, "x", (2, 8), dtype, ("chain", "draw"), chunks=(1, 4), shards=shards)
    reopened = open_group(tmp_path / "a.zarr", "a")["x"]
    reopened[:, :4] = np.full((2, 4), value, dtype)
    reopened[:, 4:] = np.full((2, 4), value, dtype)
    files = [p for p in (tmp_path / "a.zarr" / "x" / "c").rglob("*") if p.is_file()]
    assert len(files) == (2 if shards else 4)
    np.testing.assert_array_equal(open_group(tmp_path / "a.zarr")["x"][...], np.full((2, 8), value, dtype))
    files[-1].unlink()
    with pytest.raises(zarr.errors.ChunkNotFoundError):
        open_group(tmp_path / "a.zarr")["x"][...]


@pytest.mark.parametrize("aimed", [1, 100, 4096, 4 * 2**20])
@pytest.mark.parametrize("itemsize", [1, 4, 8])
@pytest.mark.parametrize(
    "shape", [(), (0,), (7,), (60000, 784), (1, 500, 7850), (4, 1000, 3), (1, 10, 6040, 20), (3, 0, 5), (2**31, 2)]
)
def test_chunks_fit_in_the_array_and_in_the_aimed_size(shape: tuple[int, ...], itemsize: int, aimed: int) -> None:
    chunk = chunk_shape(shape, itemsize, aimed)
    assert len(chunk) == len(shape)
    assert all(1 <= c <= max(1, n) for c, n in zip(chunk, shape, strict=True))
    assert math.prod(chunk) * itemsize <= max(aimed, itemsize)
    split = [axis for axis, (c, n) in enumerate(zip(chunk, shape, strict=True)) if c < n]
    if split:
        # The leading axes are split first, to single steps, and the chunk could not have been twice as large.
        assert split == list(range(split[-1] + 1)) or all(shape[a] <= 1 for a in range(split[-1]) if a not in split)
        assert all(chunk[axis] == 1 for axis in split[:-1])
        assert math.prod(chunk) * itemsize * 2 > aimed or chunk[split[-1]] * 2 > shape[split[-1]]


def test_shortened_chunk_is_an_error(tmp_path: Path, group: zarr.Group) -> None:
    write_array(group, "x", np.arange(100.0), ["row"])
    path = chunk_file(tmp_path / "a.zarr" / "x", (0,))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DAMAGE):
        open_group(tmp_path / "a.zarr")["x"][...]
    path.write_bytes(b"")
    with pytest.raises(DAMAGE):
        open_group(tmp_path / "a.zarr")["x"][...]
