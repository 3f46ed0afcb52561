"""Shards as models see them: prepared, sorted by group, as one row, and of many datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data import views
from bayesmesh.data.base import Dataset, DataSpec, Variable
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import PreparedShards, ReplicatedShards, WholeShards, prepared
from bayesmesh.models.base import Condensed, Preparation, ReadBlocks
from bayesmesh.store.layout import DataLayout

GROUP = np.array([2, 0, 2, 4, 0, 2, 1], np.int32)

SITE = np.array([2, 0, 2, 2, 0, 4], np.int32)


class Doubling(NamedTuple):
    """A preparation: twice the numbers less their mean, and nothing else."""

    mean: float
    group_field: str | None = None
    num_groups: int = 0

    arrays: Mapping[str, np.ndarray] = MappingProxyType({"bins": np.arange(3.0)})
    condense: Callable[[], Condensed | None] | None = None

    @property
    def constants(self) -> dict[str, float]:
        return {"mean_of_x": self.mean}

    def of_rows(self, rows: Any, num_rows: int) -> dict[str, np.ndarray]:
        assert len(rows["x"]) == num_rows
        return {"twice": 2 * (rows["x"] - self.mean)}


def prepare(group_field: str | None) -> Any:
    """Return a preparation that takes the mean of all rows."""

    def of(spec: Any, read_blocks: Any) -> Doubling:
        blocks = list(read_blocks())
        assert sum(len(rows["x"]) for rows in blocks) == spec.num_rows
        total = sum(float(rows["x"].sum()) for rows in blocks)
        return Doubling(total / spec.num_rows, group_field, 5 if group_field else 0)

    return of


@pytest.fixture
def path_of_groups(tmp_path: Path) -> Path:
    rows = {"x": np.arange(7.0), "group": GROUP}
    test_rows = {"x": np.array([10.0]), "group": np.array([0], np.int32)}
    layout = DataLayout(tmp_path, "test", "all")
    variables = {"group": Variable("category", levels=tuple("abcde"))}
    shard(
        Dataset(rows=rows, test_rows=test_rows, constants={"scale": 2.0}, variables=variables), DataSettings(), layout
    )
    return layout.shards


def test_without_a_preparation_rows_stay_as_they_are(path_of_groups: Path) -> None:
    found = prepared(path_of_groups, lambda spec, read_blocks: None)
    assert type(found) is Shards


def test_fields_are_the_prepared_ones(path_of_groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesmesh.data.shards.BLOCK_ROWS", 3)
    found = prepared(path_of_groups, prepare(None))
    spec = found.spec("float64")
    assert (set(spec.fields), set(spec.source_fields), spec.entry_counts) == ({"twice"}, {"x", "group"}, ())
    assert spec.constants == found.constants == {"scale": 2.0, "mean_of_x": 3.0}
    assert spec.variables["group"].levels == tuple("abcde")
    np.testing.assert_array_equal(found.read_rows(2, 5)["twice"], [-2, 0, 2])
    np.testing.assert_array_equal(found.test_rows()["twice"], [14])
    found.verify()
    assert found.fingerprint == Shards(path_of_groups).fingerprint
    with pytest.raises(IndexError, match="of 7"):
        found.read_rows(0, 8)


@pytest.mark.parametrize("kept", [0, views.KEPT_BYTES])
def test_rows_are_sorted_by_group(path_of_groups: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(views, "GATHERED_ROWS", 3)
    monkeypatch.setattr(views, "KEPT_BYTES", kept)
    found = prepared(path_of_groups, prepare("group"))
    assert isinstance(found, PreparedShards)
    # A level without rows is an entry without rows, so that entries have the numbers of levels.
    assert found.spec().entry_counts == (2, 1, 3, 0, 1)
    order = [1, 4, 6, 0, 2, 5, 3]
    np.testing.assert_array_equal(found.read_rows(0, 7)["twice"], 2 * (np.array(order) - 3.0))
    parts = [found.read_rows(start, start + 1)["twice"][0] for start in range(7)]
    np.testing.assert_array_equal(parts, found.read_rows(0, 7)["twice"])
    np.testing.assert_array_equal(found.read_chosen(np.array([0, 2, 6]))["twice"], np.array(parts)[[0, 2, 6]])
    assert found.read_rows(3, 3)["twice"].shape == (0,)


def test_condensed_rows_take_the_place_of_rows(path_of_groups: Path) -> None:
    rows = Condensed({"sums": np.arange(3.0)}, (2, 1))

    def of(spec: Any, read_blocks: Any) -> Doubling:
        return Doubling(3.0, "group", 5, condense=lambda: rows)

    found = prepared(path_of_groups, of)
    condensed = found.condensed()
    assert found.condensed().fingerprint == found.fingerprint
    spec = condensed.spec("float64")
    assert (spec.num_rows, spec.num_entries, set(spec.fields), spec.dtype) == (3, 2, {"sums"}, "float64")
    assert (spec.constants, spec.arrays, spec.source_fields) == (
        found.constants,
        found.spec().arrays,
        found.spec().source_fields,
    )
    np.testing.assert_array_equal(condensed.read_rows(1, 3)["sums"], [1, 2])
    with pytest.raises(IndexError, match="of 3"):
        condensed.read_rows(0, 4)
    assert prepared(path_of_groups, prepare("group")).condensed().num_rows == 7


def test_blocks_hold_every_row_once(path_of_groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesmesh.data.shards.BLOCK_ROWS", 4)
    seen: list[np.ndarray] = []

    def of(spec: Any, read_blocks: Any) -> None:
        again: Iterator[Any] = read_blocks()
        seen.extend(rows["x"] for rows in again)

    prepared(path_of_groups, of)
    assert [len(x) for x in seen] == [4, 3]
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(7.0))


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


def test_constants_and_arrays_of_a_model_are_added(path: Path) -> None:
    def prepare(spec: DataSpec, read_blocks: ReadBlocks) -> Preparation:
        (rows,) = read_blocks()
        assert (spec.num_rows, rows["x"].shape) == (1, (1, 5, 2))
        return Preparation(
            lambda rows, num_rows: dict(rows), {"largest": int(rows["y"].max())}, arrays={"y": rows["y"][0]}
        )

    spec = WholeShards(path, prepare).spec()
    assert spec.constants == {"scale": 2.0, "largest": 4}
    assert spec.arrays["y"].tolist() == Shards(path).read_rows(0, 5)["y"].tolist()


@pytest.mark.parametrize("bounds", [(0, 2), (-1, 1), (1, 0)])
def test_there_is_no_second_row(path: Path, bounds: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match="of 1"):
        WholeShards(path, lambda spec, read_blocks: None).read_rows(*bounds)


@pytest.fixture
def path_of_sites(tmp_path: Path) -> Path:
    rows = {
        "x": np.arange(6.0), "site": SITE, "year": np.array([7, 5, 7, 5, 7, 5]), "wide": np.arange(12.0).reshape(6, 2),
    }  # fmt: skip
    layout = DataLayout(tmp_path, "test", "all")
    variables = {"site": Variable("category", levels=tuple("abcde"))}
    shard(Dataset(rows=rows, variables=variables), DataSettings(), layout)
    return layout.shards


def test_rows_lie_by_dataset_and_keep_their_order(path_of_sites: Path) -> None:
    found = ReplicatedShards(Shards(path_of_sites), "site", is_whole=False)
    assert (found.names, found.counts.tolist(), found.values.tolist()) == (["a", "c", "e"], [2, 3, 1], [0, 2, 4])
    spec = found.spec("float64")
    assert (spec.num_rows, spec.dataset_counts, found.num_observations) == (3, (2, 3, 1), 6)
    np.testing.assert_array_equal(found.read_rows(0, 6)["x"], [1, 4, 0, 2, 3, 5])
    np.testing.assert_array_equal(found.read_rows(1, 4)["wide"], [[8, 9], [0, 1], [4, 5]])
    assert found.fingerprint == Shards(path_of_sites).fingerprint
    found.verify()
    with pytest.raises(IndexError, match="of 6"):
        found.read_rows(0, 7)


def test_rows_that_a_model_prepares_lie_by_dataset_too(path_of_sites: Path) -> None:
    doubled = prepared(
        path_of_sites, lambda spec, read: Preparation(lambda rows, _: {"twice": 2 * rows["x"]}, {"mean": 2.5})
    )
    found = ReplicatedShards(doubled, "year", is_whole=False)
    assert found.names == ["5", "7"]
    np.testing.assert_array_equal(found.read_rows(0, 6)["twice"], [2, 6, 10, 0, 4, 8])
    assert set(found.spec().fields) == {"twice"}
    assert found.spec().constants["mean"] == 2.5
