"""What `shard` wrote is read back whole, in parts and damaged; whatever a model can see changes its fingerprint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data import sharding
from bayesmesh.data.base import Dataset, FieldSpec, Variable
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards, fingerprint_data
from bayesmesh.data.sources import films
from bayesmesh.data.split import Interactions
from bayesmesh.errors import StoreError
from bayesmesh.store.layout import DataLayout

ARRAYS = {"rows/x": np.arange(6, dtype=np.int32).reshape(2, 3), "rows/y": np.zeros((), np.float64)}
DESCRIBED: dict[str, Any] = {"kind": "rows", "columns": {"title": ["a", "b"]}}


@pytest.mark.parametrize(
    ("arrays", "described"),
    [
        ({**ARRAYS, "rows/x": ARRAYS["rows/x"] + np.eye(2, 3, dtype=np.int32)}, DESCRIBED),
        ({**ARRAYS, "rows/x": ARRAYS["rows/x"].astype(np.uint32)}, DESCRIBED),
        ({**ARRAYS, "rows/x": ARRAYS["rows/x"].reshape(3, 2)}, DESCRIBED),
        ({"rows/z": ARRAYS["rows/x"], "rows/y": ARRAYS["rows/y"]}, DESCRIBED),
        ({**ARRAYS, "rows/e": np.empty((0, 2))}, DESCRIBED),
        (ARRAYS, {**DESCRIBED, "columns": {"title": ["b", "a"]}}),
        (ARRAYS, {**DESCRIBED, "kind": "interactions"}),
    ],
)
def test_any_change_shows(arrays: dict[str, np.ndarray], described: dict[str, Any]) -> None:
    assert fingerprint_data(arrays, described) != fingerprint_data(ARRAYS, DESCRIBED)


def test_the_value_itself_is_fixed() -> None:
    """A change of the method would orphan every chain identity; make it knowingly."""
    assert fingerprint_data(ARRAYS, DESCRIBED).startswith("f93ae98c67aa")


@pytest.fixture
def dataset() -> Dataset:
    generator = np.random.default_rng(0)
    return Dataset(
        rows={
            "features": generator.integers(0, 256, (67, 5), np.uint8),
            "label": generator.integers(0, 9, 67, np.uint8),
        },
        test_rows={"features": np.ones((3, 5), np.uint8), "label": np.zeros(3, np.uint8)},
        constants={"num_classes": 10, "noise_scale": 0.5},
        columns={"title": ["é", "b"]},
        truth={"weights": generator.standard_normal((2, 3)), "scalar": np.array(2.5)},
    )


@pytest.fixture
def shards(dataset: Dataset, layout: DataLayout, monkeypatch: pytest.MonkeyPatch) -> Shards:
    """67 rows in shards of 16 and chunks of 8: the last shard and the last chunk are not full."""
    monkeypatch.setattr(sharding, "row_chunks", lambda rows, size: (8, 16))
    shard(dataset, DataSettings(), layout)
    return Shards(layout.shards)


@pytest.mark.parametrize(("start", "stop"), [(0, 67), (0, 0), (15, 17), (60, 67), (66, 67), (67, 67)])
def test_any_range_comes_back(shards: Shards, dataset: Dataset, start: int, stop: int) -> None:
    rows = shards.read_rows(start, stop)
    assert set(rows) == {"features", "label"}
    for name, values in rows.items():
        np.testing.assert_array_equal(values, dataset.rows[name][start:stop])
        assert values.dtype == np.uint8


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (5, 4), (0, 68)])
def test_range_outside_is_an_error(shards: Shards, start: int, stop: int) -> None:
    with pytest.raises(IndexError):
        shards.read_rows(start, stop)


def test_everything_else_comes_back(shards: Shards, dataset: Dataset) -> None:
    shards.verify()
    for name, values in shards.test_rows().items():
        np.testing.assert_array_equal(values, dataset.test_rows[name])
    truth = shards.truth()
    assert set(truth) == {"weights", "scalar"}
    np.testing.assert_array_equal(truth["weights"], dataset.truth["weights"])
    assert truth["scalar"].shape == ()
    assert shards.held_out() is None
    assert (shards.kind, shards.columns) == ("rows", {"title": ["é", "b"]})


def test_spec(shards: Shards) -> None:
    spec = shards.spec("float64")
    assert spec.num_rows == 67
    assert spec.fields == {"features": FieldSpec((5,), "uint8"), "label": FieldSpec((), "uint8")}
    assert spec.constants == {"num_classes": 10, "noise_scale": 0.5}
    assert spec.dtype == "float64"


def test_reading_a_range_opens_only_its_shards(shards: Shards, dataset: Dataset) -> None:
    (shards.path / "rows/features/c/3/0").unlink()
    np.testing.assert_array_equal(shards.read_rows(0, 48)["features"], dataset.rows["features"][:48])
    with pytest.raises(StoreError, match="rows/features: damaged or missing"):
        shards.read_rows(40, 49)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("position", [20, -20])
def test_flipped_bit_names_the_array(shards: Shards, position: int) -> None:
    flip(shards.path / "rows/features/c/1/0", position)
    with pytest.raises(StoreError, match="rows/features: damaged") as caught:
        shards.read_rows(0, 67)
    assert "shard stage again" in caught.value.remedy


def test_changed_but_well_formed_values_do_not_verify(shards: Shards, dataset: Dataset, layout: DataLayout) -> None:
    other = DataLayout(layout.results, "other", "split")
    shard(
        Dataset(**{**vars(dataset), "truth": {"weights": np.zeros((2, 3)), "scalar": np.array(2.5)}}),
        DataSettings(),
        other,
    )
    target = shards.path / "truth/weights/c/0/0"
    target.write_bytes((other.shards / "truth/weights/c/0/0").read_bytes())
    with pytest.raises(StoreError, match="fingerprint"):
        Shards(shards.path).verify()


def test_held_out_films(layout: DataLayout) -> None:
    dataset = films.Source(films.Options(num_users=31, num_films=17)).read(layout.records)
    shard(dataset, DataSettings(held_out_fraction=0.25), layout)
    shards = Shards(layout.shards)
    shards.verify()
    hidden, training = shards.held_out(), shards.read_rows(0, 31)["watched"]
    assert isinstance(hidden, Interactions)
    restored = training.copy()
    restored[np.repeat(np.arange(31), np.diff(hidden.indptr)), hidden.indices] = 1
    np.testing.assert_array_equal(restored, dataset.rows["watched"])
    assert int(training.sum()) + len(hidden.indices) == int(dataset.rows["watched"].sum())


def test_held_out_rows(dataset: Dataset, layout: DataLayout) -> None:
    shard(dataset, DataSettings(held_out_fraction=0.1), layout)
    shards = Shards(layout.shards)
    shards.verify()
    hidden = shards.held_out()
    assert isinstance(hidden, dict)
    assert shards.num_rows == 60
    assert len(hidden["label"]) == 7
    together = np.concatenate([shards.read_rows(0, 60)["features"], hidden["features"]])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(dataset.rows["features"], axis=0))


def test_all_blocks_have_the_rows_that_were_held_out(dataset: Dataset, layout: DataLayout) -> None:
    shard(dataset, DataSettings(held_out_fraction=0.3), layout)
    found = [block["label"] for block in Shards(layout.shards).all_blocks()]
    rows, tests = dataset.rows["label"], dataset.test_rows["label"]
    assert [len(each) for each in found] == [47, 20, len(tests)]
    np.testing.assert_array_equal(np.sort(np.concatenate(found[:2])), np.sort(rows))
    np.testing.assert_array_equal(found[2], tests)


def test_rows_of_each_level_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesmesh.data.shards.BLOCK_ROWS", 3)
    rows = {"site": np.array([0, 2, 2, 0, 2, 2, 0], np.int32), "x": np.zeros(7)}
    variables = {"site": Variable("category", ("a", "b", "c")), "x": Variable("number")}
    layout = DataLayout(tmp_path, "some", "all")
    shard(Dataset(rows, variables=variables), DataSettings(held_out_fraction=0.0), layout)
    assert Shards(layout.shards).count_levels() == {"site": {"a": 3, "b": 0, "c": 4}}
