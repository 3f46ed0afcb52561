"""Shards with the whole dataset as one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset, DataSpec
from bayesmesh.data.prepared_shards import ReadBlocks
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.whole_shards import WholeShards
from bayesmesh.models.base import Preparation
from bayesmesh.store.layout import DataLayout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = {"x": np.arange(10.0).reshape(5, 2), "y": np.arange(5, dtype=np.int16)}
    layout = DataLayout(tmp_path, "test", "all")
    shard(Dataset(rows=rows, constants={"scale": 2.0}), DataSettings(), layout)
    return layout.shards


def test_all_rows_are_one(path: Path) -> None:
    plain, whole = Shards(path), WholeShards(path, lambda spec, read_blocks: None)
    assert (whole.num_rows, whole.num_observations, plain.num_observations) == (1, 5, 5)
    spec = whole.spec("float64")
    assert (spec.num_rows, spec.num_entries, spec.constants) == (1, 1, {"scale": 2.0})
    found, expected = whole.read_rows(0, 1), plain.read_rows(0, 5)
    for name, field in spec.fields.items():
        assert (found[name].shape[1:], found[name].dtype) == (field.shape, field.dtype)
        np.testing.assert_array_equal(found[name], expected[name][None])
    assert {k: v.shape for k, v in whole.read_rows(0, 0).items()} == {"x": (0, 5, 2), "y": (0, 5)}
    whole.verify()


def test_constants_of_a_model_are_added(path: Path) -> None:
    def prepare(spec: DataSpec, read_blocks: ReadBlocks) -> Preparation:
        (rows,) = read_blocks()
        assert (spec.num_rows, rows["x"].shape) == (1, (1, 5, 2))
        return Preparation(lambda rows, num_rows: dict(rows), {"largest": int(rows["y"].max())})

    assert WholeShards(path, prepare).spec().constants == {"scale": 2.0, "largest": 4}


@pytest.mark.parametrize("bounds", [(0, 2), (-1, 1), (1, 0)])
def test_there_is_no_second_row(path: Path, bounds: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match="of one"):
        WholeShards(path, lambda spec, read_blocks: None).read_rows(*bounds)
