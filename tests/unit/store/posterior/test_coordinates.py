"""Blocks of chosen coordinates, in whatever chunks they lie, with each chunk read once and few blocks in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from bayesmesh.store.arrays import create_array, open_group
from bayesmesh.store.posterior import coordinates as posterior_coordinates
from bayesmesh.store.posterior.coordinates import coordinate_blocks

CHAINS, DRAWS = 4, 41


def drawn(*event: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(CHAINS, DRAWS, *event)).astype(np.float32)


@pytest.mark.parametrize("chunks", [(1, 10, 2, 3), (1, 1, 5, 7), (4, 41, 1, 7), (3, 7, 5, 2)], ids=str)
@pytest.mark.parametrize("block_bytes", [1, 2000, 2**20])
def test_blocks_hold_the_chosen_coordinates(tmp_path, chunks, block_bytes) -> None:
    values = drawn(5, 7)
    group = open_group(tmp_path / "a.zarr", "w")
    array = create_array(group, "w", values.shape, values.dtype, ("chain", "draw", "a", "b"), chunks=chunks)
    array[...] = values
    positions = np.array([0, 3, 4, 11, 17, 33, 34])
    parts = list(coordinate_blocks(array, positions, block_bytes))
    np.testing.assert_array_equal(
        np.concatenate([draws for _, draws in parts], axis=2), values.reshape(CHAINS, DRAWS, -1)[:, :, positions]
    )
    most = max(1, block_bytes // (CHAINS * DRAWS * 4))
    assert max(draws.shape[2] for _, draws in parts) <= most


@pytest.mark.parametrize("chunks", [(1, 10, 5, 7), (4, 41, 1, 7), (3, 7, 5, 2)], ids=str)
def test_an_array_of_many_blocks_is_read_once(tmp_path, monkeypatch, chunks) -> None:
    values = drawn(5, 7)
    group = open_group(tmp_path / "a.zarr", "w")
    array = create_array(group, "w", values.shape, values.dtype, ("chain", "draw", "a", "b"), chunks=chunks)
    array[...] = values
    num_read, read = 0, posterior_coordinates.read_part

    def count(array, *part):
        nonlocal num_read
        found = read(array, *part)
        num_read += found.size
        return found

    monkeypatch.setattr(posterior_coordinates, "read_part", count)
    block_bytes = 6 * CHAINS * DRAWS * 4
    parts = list(coordinate_blocks(array, np.arange(35), block_bytes, tmp_path / "scratch"))
    assert num_read == values.size
    assert list((tmp_path / "scratch").iterdir()) == []
    assert [draws.shape[2] for _, draws in parts] == [6] * 5 + [5]
    np.testing.assert_array_equal(
        np.concatenate([draws for _, draws in parts], axis=2), values.reshape(CHAINS, DRAWS, -1)
    )


def test_reading_once_needs_few_blocks_of_memory(tmp_path) -> None:
    group = open_group(tmp_path / "a.zarr", "w")
    shape = (2, 400, 4000)
    array = create_array(group, "w", shape, np.float32, ("chain", "draw", "a"), chunks=(1, 10, 4000))
    array[...] = 1.0
    block_bytes = 2**20
    tracemalloc.start()
    try:
        num_read = sum(draws.shape[2] for _, draws in coordinate_blocks(array, np.arange(4000), block_bytes, tmp_path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_read == 4000
    assert array.nbytes > 10 * block_bytes
    assert peak < 5 * block_bytes
