"""Draws are read once where they are few, and in chunks of one size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.store.posterior import chunks as draw_chunks
from bayesmesh.store.posterior.chunks import StoredDraws
from bayesmesh.store.posterior.reader import Posterior

SHAPE = (2, 50)


@pytest.fixture
def posterior(tmp_path: Path) -> Posterior:
    group = open_group(tmp_path / "posterior.zarr", "w").create_group("posterior")
    values = np.arange(SHAPE[0] * SHAPE[1] * 3, dtype=np.float64).reshape(*SHAPE, 3)
    write_array(group, "a", values, (CHAIN, DRAW, "k"))
    write_array(group, "code", values[..., 0].astype(np.int32), (CHAIN, DRAW))
    return Posterior(tmp_path / "posterior.zarr")


@pytest.mark.parametrize(("kept_bytes", "num_reads"), [(2**20, 1), (0, 3)])
def test_a_small_posterior_is_read_once(
    posterior: Posterior, monkeypatch: pytest.MonkeyPatch, kept_bytes: int, num_reads: int
) -> None:
    monkeypatch.setattr(draw_chunks, "KEPT_BYTES", kept_bytes)
    blocks, reads = Posterior.blocks, []

    def count(self: Posterior, *arguments: object, **options: object) -> object:
        reads.append(1)
        return blocks(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Posterior, "blocks", count)
    draws = StoredDraws(posterior, "float32")
    for _ in range(3):
        chunks = list(draws.chunks())
    assert len(reads) == num_reads
    assert [(first, count) for first, count, _ in chunks] == [(0, 64), (64, 36)]
    assert {latents["a"].shape for _, _, latents in chunks} == {(64, 3)}
    assert (chunks[0][2]["a"].dtype, chunks[0][2]["code"].dtype) == (np.float32, np.int32)
    found = np.concatenate([latents["a"][:count] for _, count, latents in chunks])
    # Draw by draw and, within a draw, chain by chain.
    expected = np.arange(300.0).reshape(*SHAPE, 3).swapaxes(0, 1).reshape(-1, 3)
    np.testing.assert_array_equal(found, expected)
