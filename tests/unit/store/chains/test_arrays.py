"""Arrays of draws: one shard per segment, in chunks of a sensible size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.store.arrays import open_group
from bayesmesh.store.chains import arrays as draw_arrays
from bayesmesh.store.chains.arrays import DrawArrays


def _write(arrays: DrawArrays, value: np.ndarray, start: int) -> Path:
    """Stage and publish; returns the shard's file."""
    staged = arrays.stage("posterior/x", value, start)
    arrays.flush([staged])
    arrays.publish([staged])
    return arrays.folder / draw_arrays.DRAWS / staged.file


@pytest.mark.parametrize("event", [(), (3,), (2, 3), (1_500_007,)])
def test_a_segment_is_one_file_of_all_chains(tmp_path: Path, event: tuple[int, ...]) -> None:
    value = np.random.default_rng(0).normal(size=(2, 4, *event)).astype(np.float32)
    arrays = DrawArrays(tmp_path, 4)
    files = [_write(arrays, value[:, :count], start) for start, count in ((0, 4), (4, 1))]
    assert {p for p in (tmp_path / "draws.zarr").rglob("c/**/*") if p.is_file()} == set(files)
    assert not [*(tmp_path / "staged").iterdir()]
    array = open_group(tmp_path / "draws.zarr")["posterior/x"]
    np.testing.assert_array_equal(array[...], np.concatenate([value, value[:, :1]], axis=1))
    assert array.shards == (2, 4, *event)
    assert array.chunks[0] == 1, "a chain can be read alone"
    assert 2**10 < np.prod(array.chunks) * 4 < 2**24 or np.prod(array.chunks) == 4 * np.prod(event)


def test_staged_draws_leave_the_committed_ones_alone(tmp_path: Path) -> None:
    arrays = DrawArrays(tmp_path, 4)
    path = _write(arrays, np.ones((2, 3)), 0)
    before = path.read_bytes()
    staged = arrays.stage("posterior/x", np.full((2, 1), 7.0), 3)
    assert path.read_bytes() == before
    assert open_group(tmp_path / "draws.zarr")["posterior/x"].shape == (2, 3)
    for _ in range(2):
        arrays.publish([staged])
        np.testing.assert_array_equal(open_group(tmp_path / "draws.zarr")["posterior/x"][...], [[1, 1, 1, 7]] * 2)
