"""Rows of many datasets are sorted by the field that tells them apart, and named by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset, Variable
from bayesmesh.data.prepared_shards import prepared
from bayesmesh.data.replicated_shards import ReplicatedShards
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Preparation
from bayesmesh.store.layout import DataLayout

SITE = np.array([2, 0, 2, 2, 0, 4], np.int32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = {
        "x": np.arange(6.0), "site": SITE, "year": np.array([7, 5, 7, 5, 7, 5]), "wide": np.arange(12.0).reshape(6, 2),
    }  # fmt: skip
    layout = DataLayout(tmp_path, "test", "all")
    variables = {"site": Variable("category", levels=tuple("abcde"))}
    shard(Dataset(rows=rows, variables=variables), DataSettings(), layout)
    return layout.shards


def test_rows_lie_by_dataset_and_keep_their_order(path: Path) -> None:
    found = ReplicatedShards(Shards(path), "site", is_whole=False)
    assert (found.names, found.counts.tolist(), found.values.tolist()) == (["a", "c", "e"], [2, 3, 1], [0, 2, 4])
    spec = found.spec("float64")
    assert (spec.num_rows, spec.dataset_counts, found.num_observations) == (3, (2, 3, 1), 6)
    np.testing.assert_array_equal(found.read_rows(0, 6)["x"], [1, 4, 0, 2, 3, 5])
    np.testing.assert_array_equal(found.read_rows(1, 4)["wide"], [[8, 9], [0, 1], [4, 5]])
    assert found.fingerprint == Shards(path).fingerprint
    found.verify()
    with pytest.raises(IndexError, match="of 6"):
        found.read_rows(0, 7)


def test_rows_that_a_model_prepares_lie_by_dataset_too(path: Path) -> None:
    doubled = prepared(path, lambda spec, read: Preparation(lambda rows, _: {"twice": 2 * rows["x"]}, {"mean": 2.5}))
    found = ReplicatedShards(doubled, "year", is_whole=False)
    assert found.names == ["5", "7"]
    np.testing.assert_array_equal(found.read_rows(0, 6)["twice"], [2, 6, 10, 0, 4, 8])
    assert set(found.spec().fields) == {"twice"}
    assert found.spec().constants["mean"] == 2.5
