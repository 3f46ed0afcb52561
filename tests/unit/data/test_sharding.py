"""What `shard` checks, and what it writes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import zarr

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data import sharding
from bayesmesh.data.base import Dataset, Variable
from bayesmesh.data.sharding import check_values, shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.sources import films, gaussian
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout

WATCHED = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], np.uint8)

SOIL = Variable("category", ("clay", "sand"))


def table(**changes: Any) -> Dataset:
    dataset = Dataset(
        rows={"x": np.arange(10.0).reshape(5, 2), "y": np.arange(5, dtype=np.uint8)},
        columns={"title": ["a", "b"]},
        constants={"noise_scale": 1.0},
        declared_counts={"rows": 5},
    )
    return dataclasses.replace(dataset, **changes)


def categories(codes: list[int]) -> Dataset:
    return table(
        rows={"soil": np.array(codes, np.int32)}, columns={}, variables={"soil": Variable("category", ("clay", "sand"))}
    )


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (table(declared_counts={"rows": 6}), "rows: expected 6, found 5"),
        (table(declared_counts={"rows": 4}), "rows: expected 4, found 5"),
        (table(declared_counts={"test_rows": 1}), "test_rows: expected 1, found 0"),
        (table(declared_counts={"cells": 1}), "declared count 'cells'"),
        (table(rows={"x": np.zeros((5, 2)), "y": np.zeros(4)}), "unequal lengths"),
        (
            table(rows={"x": np.array([[0.0], [np.nan], [1], [2], [3]])}),
            "rows/x: row 2, counted from 1: a value is not finite",
        ),
        (
            categories([0, 1, 2, 1, 0]),
            "rows/soil: row 3, counted from 1: 2 is not the code of a level; the column has codes 0 to 1",
        ),
        (categories([0, 1, 1, -1, 0]), "rows/soil: row 4, counted from 1: -1 is not the code"),
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


class Lazy:
    """An array larger than memory: it can be read in ranges of rows, and says how many at a time."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype, self.most = values, values.shape, values.dtype, 0

    def __getitem__(self, rows: slice) -> np.ndarray:
        part = self.values[rows]
        self.most = max(self.most, len(part))
        return part


@pytest.mark.parametrize("settings", [{}, {"held_out_fraction": 0.3}])
def test_arrays_are_read_in_blocks_and_written_alike(
    layout: DataLayout, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    rows = {"x": rng.standard_normal((5000, 3)), "label": rng.integers(0, 9, 5000).astype(np.uint8)}
    whole = Dataset(rows=rows, test_rows=rows)
    plain = shard(whole, DataSettings(**settings), layout)
    before = Shards(layout.shards)
    kept, hidden = before.read_rows(0, before.num_rows), before.held_out()
    monkeypatch.setattr(sharding, "SHARD_ROWS", 1024)
    monkeypatch.setattr(sharding, "BLOCK_BYTES", 1)
    lazy = {name: Lazy(values) for name, values in rows.items()}
    assert shard(dataclasses.replace(whole, rows=lazy), DataSettings(**settings), layout) == plain
    after = Shards(layout.shards)
    assert {values.most for values in lazy.values()} == {1024}
    for name in rows:
        np.testing.assert_array_equal(after.read_rows(0, after.num_rows)[name], kept[name])
        if settings:
            np.testing.assert_array_equal(after.held_out()[name], hidden[name])
            np.testing.assert_array_equal(np.sort(np.r_[kept[name], hidden[name]], 0), np.sort(rows[name], 0))
    after.verify()


def test_a_value_that_is_not_finite_is_named_by_its_row_in_the_source(layout: DataLayout) -> None:
    x = np.zeros(100)
    x[77] = np.inf
    for fraction in (0.0, 0.1, 0.9):
        with pytest.raises(DataError, match="rows/x: row 78, counted from 1: a value is not finite"):
            shard(Dataset(rows={"x": x}), DataSettings(held_out_fraction=fraction), layout)


@pytest.mark.parametrize(
    ("settings", "hidden"),
    [
        ({"held_out_last": "time"}, [3.0, 4.0]),
        ({"held_out_groups": "school"}, None),
    ],
)
def test_rows_are_held_out_by_time_or_group(
    layout: DataLayout, settings: dict[str, Any], hidden: list[float] | None
) -> None:
    rows = {"time": np.array([0.0, 4, 1, 2, 3, 0]), "school": np.array([0, 0, 1, 1, 2, 2], np.int32)}
    manifest = shard(Dataset(rows=rows), DataSettings(held_out_fraction=0.34, **settings), layout)
    found, kept = Shards(layout.shards).held_out(), Shards(layout.shards).read_rows(0, 4)
    assert manifest["split"].items() >= settings.items()
    clusters = Shards(layout.shards).held_out_clusters()
    if hidden is not None:
        assert sorted(found["time"]) == hidden
        assert clusters is None
    else:
        assert len(set(found["school"])) == 1
        assert not set(found["school"]) & set(kept["school"])
        assert clusters is not None
        np.testing.assert_array_equal(clusters, found["school"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out_last": "tim"}, "key 'data.held_out_last': 'tim' is not a field with one number per row"),
        ({"held_out_groups": "x"}, "key 'data.held_out_groups': 'x' is not a field with one number per row"),
        ({"held_out_last": "same"}, "key 'data.held_out_last': 'same' has the same value in all rows"),
        ({"held_out_groups": "same"}, "key 'data.held_out_groups': 'same' has the same value in all rows"),
    ],
)
def test_splits_that_cannot_be_made_are_refused(layout: DataLayout, settings: dict[str, Any], message: str) -> None:
    rows = {"time": np.arange(4.0), "x": np.zeros((4, 2)), "same": np.ones(4)}
    with pytest.raises(DataError, match=message):
        shard(Dataset(rows=rows), DataSettings(held_out_fraction=0.5, **settings), layout)
    assert not layout.shards.exists()


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


@pytest.mark.parametrize(
    ("block", "about", "said"),
    [
        (
            np.array([0, 2], np.uint8),
            SOIL,
            "rows/soil: row 42, counted from 1: 2 is not the code of a level; the column has codes 0 to 1",
        ),
        (np.array([-1, 0]), SOIL, "row 41, counted from 1: -1 is not the code"),
        (np.array([1.0, 0.5]), SOIL, "row 42, counted from 1: 0.5 is not the code"),
        (np.array([0.0, np.inf]), SOIL, "row 42, counted from 1: a value is not finite"),
        (np.array([[0.0, np.nan]], np.float32), None, "row 41, counted from 1: a value is not finite"),
    ],
)
def test_others_are_named_by_their_row(block: np.ndarray, about: Variable | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        check_values("rows/soil", 40, block, about)
