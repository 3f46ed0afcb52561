"""Rows fall into bins by columns whose names may meet, and of which only so many are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.analyses.predictive_checks.columns import MOST_VARIABLES, bin_columns, bin_levels, bin_numbers
from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.store.layout import DataLayout

NUM = 120
GENERATOR = np.random.default_rng(4)
OUTCOME = GENERATOR.standard_normal(NUM)


def stored(folder: Path, rows: Mapping[str, np.ndarray], labels: Mapping[str, tuple[str, ...]] | None = None) -> Shards:
    layout = DataLayout(folder, "some", "all")
    shard(Dataset(rows, labels=labels or {}), DataSettings(held_out_fraction=0.0), layout)
    return Shards(layout.shards)


def test_columns_are_taken_until_enough_vary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant columns and the outcome itself count for nothing; the last columns of 100 are not read."""
    rows = {f"same_{i:02}": np.full(NUM, 1.0 * i) for i in range(40)}
    rows |= {"outcome": 2 * OUTCOME, **{f"x_{i:02}": GENERATOR.standard_normal(NUM) for i in range(60)}}
    shards = stored(tmp_path, rows)
    read: set[str] = set()
    blocks = Shards.blocks

    def watched(self: Shards, *args: int) -> object:
        for block in blocks(self, *args):
            yield Watched(block, read)

    monkeypatch.setattr(Shards, "blocks", watched)
    found = bin_columns(shards, OUTCOME)
    assert [each.name for each in found] == [f"x_{i:02}" for i in range(MOST_VARIABLES)]
    assert "x_59" not in read
    assert "x_00" in read


class Watched(dict[str, np.ndarray]):
    """A block that remembers which of its columns were read."""

    def __init__(self, block: Mapping[str, np.ndarray], read: set[str]) -> None:
        super().__init__(block)
        self._read = read

    def __getitem__(self, name: str) -> np.ndarray:
        self._read.add(name)
        return super().__getitem__(name)


def test_missing_numbers_and_rare_levels_are_in_no_bin() -> None:
    values = np.where(np.arange(NUM) % 3 == 0, np.nan, OUTCOME)
    found = bin_numbers("x", values)
    np.testing.assert_array_equal(found.codes < 0, np.isnan(values))
    assert bin_numbers("x", np.ones(NUM)) is None
    codes = np.r_[np.repeat(np.arange(200), 3), np.arange(200, 210)]
    levels = bin_levels("site", codes, tuple(f"s{i}" for i in range(210)))
    assert len(levels.labels) == 200
    assert (levels.codes[-10:] == -1).all()
    assert levels.labels[3] == "s3"
