"""Blocks of rows and chunks of draws: sizes, padding, strides, and what holds at which draw."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.analyses import _draw_blocks
from bayesmesh.analyses._draw_blocks import DrawBlocks
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.base import Model
from bayesmesh.store.arrays import create_array, open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.store.posterior.reader import Posterior

NUM_ROWS = 10
SPEC = DataSpec(NUM_ROWS, {"y": FieldSpec((), "float64")}, {}, "float32")
VALUES = np.arange(200.0).reshape(2, 100)
ROWS = {"y": np.arange(10.0), "code": np.arange(10, dtype=np.int16)}


class Doubled(Model):
    """Its outcome is twice a field."""

    pretty_name = "Doubled"
    offers = ()

    def __init__(self, field: str) -> None:
        self.field = field

    prior = log_likelihood = predict = summaries = lambda *_: None  # type: ignore[assignment]

    def outcome(self, rows: Any) -> Any:
        return 2 * rows[self.field]


def read(start: int, stop: int) -> dict[str, np.ndarray]:
    return {k: v[start:stop] for k, v in ROWS.items()}


def draws(folder: Path, stride: int, field: str = "y") -> DrawBlocks:
    group = open_group(folder / "posterior.zarr", "w").create_group("posterior")
    write_array(group, "a", VALUES, (CHAIN, DRAW))
    return DrawBlocks("own", Doubled(field), SPEC, Posterior(folder / "posterior.zarr"), stride)


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_chunks_hold_every_so_many_th_draw_of_all_chains_once(tmp_path: Path, stride: int) -> None:
    """Also with a stride that shares a factor with the number of chains."""
    found = draws(tmp_path, stride)
    is_kept = np.isin(VALUES, VALUES.ravel()[::stride])
    everything = VALUES.T[is_kept.T]
    assert is_kept.sum(axis=1) == pytest.approx(100 / stride, abs=1)
    chunks = list(found.chunks())
    assert found.num_draws == len(everything)
    assert [first for first, _, _ in chunks] == [0, *np.cumsum([count for _, count, _ in chunks])[:-1]]
    assert len({len(latents["a"]) for _, _, latents in chunks}) == 1
    np.testing.assert_array_equal(np.concatenate([latents["a"][:count] for _, count, latents in chunks]), everything)
    assert found.first_draw()["a"] == 0


def test_memory_follows_the_blocks_and_not_the_draws_that_are_kept(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(_draw_blocks, "BLOCK_BYTES", 2**20)
    group, shape = open_group(tmp_path / "posterior.zarr", "w").create_group("posterior"), (2, 120, 2**15)
    array = create_array(group, "a", shape, np.float64, (CHAIN, DRAW, "n"), chunks=(1, 2, 2**15))
    array[...] = np.arange(240.0).reshape(2, 120, 1)
    found = DrawBlocks("own", Doubled("y"), SPEC, Posterior(tmp_path / "posterior.zarr"), 3)
    tracemalloc.start()
    try:
        sizes = {latents["a"].shape[0] for _, _, latents in found.chunks()}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sizes == {2**20 // (8 * 2**15)}
    assert peak < 8 * 2**20 < array.nbytes / 7


def test_blocks_have_one_shape_and_repeat_the_last_row(tmp_path: Path) -> None:
    blocks = list(draws(tmp_path, 1).blocks(read, NUM_ROWS, 4, np.arange(10) // 5))
    assert [(each.start, each.num_rows) for each in blocks] == [(0, 4), (4, 4), (8, 2)]
    assert {each.rows["y"].shape for each in blocks} == {(4,)}
    last = blocks[-1]
    np.testing.assert_array_equal(last.rows["y"], [8, 9, 9, 9])
    np.testing.assert_array_equal(last.entries, [1, 1, 1, 1])
    assert (last.rows["y"].dtype, last.rows["code"].dtype) == (np.float32, np.int16)
    np.testing.assert_array_equal(np.concatenate([each.outcome for each in blocks]), 2 * ROWS["y"])
    assert jnp.asarray(last.outcome).shape == (2,)
