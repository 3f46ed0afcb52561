"""What `shard` checks, and what it writes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import zarr

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import check_counts, row_chunks, shard
from bayesmesh.data.sources import films, gaussian
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.sealed import read_sealed

WATCHED = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], np.uint8)


def table(**changes: Any) -> Dataset:
    dataset = Dataset(
        rows={"x": np.arange(10.0).reshape(5, 2), "y": np.arange(5, dtype=np.uint8)},
        columns={"title": ["a", "b"]},
        constants={"noise_scale": 1.0},
        declared_counts={"rows": 5},
    )
    return dataclasses.replace(dataset, **changes)


def test_counts_of_a_watch_matrix() -> None:
    dataset = Dataset(rows={"watched": WATCHED}, kind="interactions")
    assert check_counts(dataset) == {"rows": 3, "test_rows": 0, "columns": 3, "interactions": 5}


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (table(declared_counts={"rows": 6}), "rows: expected 6, found 5"),
        (table(declared_counts={"rows": 4}), "rows: expected 4, found 5"),
        (table(declared_counts={"test_rows": 1}), "test_rows: expected 1, found 0"),
        (table(declared_counts={"cells": 1}), "declared count 'cells'"),
        (table(rows={"x": np.zeros((5, 2)), "y": np.zeros(4)}), "unequal lengths"),
        (table(rows={"x": np.array([[0.0], [np.nan]])}), "rows/x: row 1: a value is not finite"),
        (table(rows={}), "no rows"),
        (table(test_rows={"x": np.zeros((1, 2))}), "test rows have the fields"),
        (table(kind="interactions"), "needs rows\\['watched'\\]"),
        (Dataset(rows={"watched": WATCHED * 2}, kind="interactions"), "of 0 and 1"),
        (
            Dataset(rows={"watched": WATCHED}, kind="interactions", declared_counts={"interactions": 6}),
            "interactions: expected 6, found 5",
        ),
    ],
)
def test_wrong_counts_and_values_are_named(dataset: Dataset, message: str, layout: DataLayout) -> None:
    with pytest.raises(DataError, match=message):
        shard(dataset, DataSettings(), layout)
    assert not layout.shards.exists()
    assert not layout.sharded.exists()


def test_chunks_divide_shards_and_stay_small() -> None:
    for num_rows in (1, 7, 1023, 8192, 8193, 10**6):
        for row_bytes in (1, 784, 3706, 10**6, 10**8):
            chunk, whole = row_chunks(num_rows, row_bytes)
            assert whole % chunk == 0
            assert chunk == 1 or chunk * row_bytes <= 4 * 2**20
            assert whole <= 8192


def test_written_group_is_plain_checksummed_zarr(layout: DataLayout) -> None:
    shard(table(), DataSettings(held_out_fraction=0.2), layout)
    group = zarr.open_group(str(layout.shards), mode="r", zarr_format=3)
    array = group["rows/y"]
    assert isinstance(array, zarr.Array)
    assert array.dtype == np.uint8
    assert array.shards == (1024,)
    assert array.metadata.dimension_names == ("row",)
    assert "'checksum': True" in str(array.metadata.to_dict())
    assert group["rows/x"].metadata.dimension_names == ("row", "x_dim_1")
    assert group.attrs["num_rows"] == 4
    assert group.attrs["columns"] == {"title": ["a", "b"]}
    assert sorted(path.name for path in layout.shards.parent.iterdir()) == [
        "sharded.json",
        "shards.sha256",
        "shards.zarr",
    ]


def test_manifest(layout: DataLayout) -> None:
    manifest = shard(table(), DataSettings(held_out_fraction=0.4, split_seed=7), layout)
    assert read_sealed(layout.sharded, must_have_digest=True) == manifest
    assert manifest["counts"] == {"rows": 5, "test_rows": 0, "training_rows": 3, "held_out": 2}
    assert manifest["split"] == {"seed": 7, "held_out_fraction": 0.4}


def test_manifest_of_a_watch_matrix_has_its_activity(layout: DataLayout) -> None:
    dataset = Dataset(rows={"watched": WATCHED}, kind="interactions")
    activity = shard(dataset, DataSettings(held_out_fraction=0.5), layout)["activity"]
    assert activity["interactions"] == 5
    assert activity["most_active"] == {"user": 2, "films": 3}
    assert activity["least_active"] == {"user": 1, "films": 0, "users_with_as_many": 1}


def test_writing_again_replaces_and_reproduces(layout: DataLayout) -> None:
    dataset = films.Source(films.Options(num_users=20, num_films=9)).read(layout.records)
    first = shard(dataset, DataSettings(held_out_fraction=0.2), layout)
    (layout.shards / "stray").write_text("x")
    assert shard(dataset, DataSettings(held_out_fraction=0.2), layout) == first
    assert not (layout.shards / "stray").exists()


def test_fingerprint_follows_every_value(layout: DataLayout) -> None:
    def fingerprint(dataset: Dataset, **settings: Any) -> str:
        return str(shard(dataset, DataSettings(**settings), layout)["fingerprint"])

    dataset = gaussian.Source(gaussian.Options(num_rows=6)).read(layout.records)
    moved = {"x": dataset.rows["x"].copy()}
    moved["x"][3, 1] = np.nextafter(moved["x"][3, 1], 9)
    found = [
        fingerprint(dataset),
        fingerprint(dataclasses.replace(dataset, rows=moved)),
        fingerprint(dataclasses.replace(dataset, truth={})),
        fingerprint(dataclasses.replace(dataset, constants={"noise_scale": 2.0})),
        fingerprint(dataclasses.replace(dataset, columns={"title": ["a", "b"]})),
        fingerprint(dataset, held_out_fraction=0.5),
        fingerprint(dataset, held_out_fraction=0.5, split_seed=1),
    ]
    assert len(set(found)) == len(found)
    assert fingerprint(dataset) == found[0]
