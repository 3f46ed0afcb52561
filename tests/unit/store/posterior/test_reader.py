"""Blocks of draws: every draw once, in order, within the bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group, write_array, write_texts
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.store.posterior import reader
from bayesmesh.store.posterior.reader import Posterior, StoredDraws, open_posterior

CHAINS, DRAWS = 3, 11


@pytest.fixture
def latents() -> dict[str, np.ndarray]:
    """Two latents; a number tells its chain, draw and coordinate."""
    chain, draw = np.arange(CHAINS)[:, None], np.arange(DRAWS)[None, :]
    scale = 1000.0 * chain + draw
    return {"scale": scale.astype(np.float64), "weights": (scale[..., None] + np.arange(4) / 8).astype(np.float32)}


@pytest.fixture
def posterior(tmp_path: Path, latents: dict[str, np.ndarray]) -> Posterior:
    root = open_group(tmp_path / "posterior.zarr", "w")
    group = root.create_group("posterior")
    for name, value in latents.items():
        write_array(group, name, value, (CHAIN, DRAW, *[f"{name}_dim_0"] * (value.ndim - 2)))
    write_array(group, CHAIN, np.arange(CHAINS), [CHAIN])
    write_array(group, DRAW, np.arange(DRAWS), [DRAW])
    stats = root.create_group("sample_stats")
    write_array(stats, "lp", latents["scale"] / 2, (CHAIN, DRAW))
    return open_posterior(tmp_path / "posterior.zarr")


PER_DRAW = CHAINS * (8 + 4 * 4)


@pytest.mark.parametrize("block_bytes", [0, PER_DRAW - 1, PER_DRAW, 3 * PER_DRAW, 4 * PER_DRAW - 1, 10**9])
def test_every_draw_once_in_order_and_in_bounded_blocks(
    posterior: Posterior, latents: dict[str, np.ndarray], block_bytes: int
) -> None:
    blocks = list(posterior.blocks(block_bytes=block_bytes))
    for block in blocks:
        num_bytes = sum(v.nbytes for v in block.values())
        assert num_bytes <= max(block_bytes, PER_DRAW)
    assert len(blocks) == -(-DRAWS // max(1, min(DRAWS, block_bytes // PER_DRAW)))
    for name, value in latents.items():
        joined = np.concatenate([block[name] for block in blocks])
        expected = [value[chain, draw] for draw in range(DRAWS) for chain in range(CHAINS)]
        np.testing.assert_array_equal(joined, np.array(expected))
        assert joined.dtype == value.dtype


def test_only_what_is_asked_for_counts_and_is_read(posterior: Posterior) -> None:
    blocks = list(posterior.blocks(["scale"], block_bytes=2 * CHAINS * 8))
    assert [set(block) for block in blocks] == [{"scale"}] * 6
    assert [len(block["scale"]) for block in blocks] == [2 * CHAINS] * 5 + [CHAINS]


def test_what_is_missing_is_named(posterior: Posterior, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"posterior\.zarr: no group 'log_likelihood'\n  remedy: run the assemble"):
        posterior.group("log_likelihood")
    with pytest.raises(StoreError, match=r"posterior\.zarr: no group 'posterior/scale'"):
        posterior.group("posterior/scale")
    with pytest.raises(StoreError, match=r"no array 'posterior/bias'"):
        next(posterior.blocks(["bias"]))
    with pytest.raises(StoreError, match="no Zarr group there"):
        open_posterior(tmp_path / "other.zarr")


def test_coordinates_have_labels_in_row_major_order(tmp_path: Path) -> None:
    group = open_group(tmp_path / "named.zarr", "w").create_group("posterior")
    write_array(group, "effects", np.zeros((1, 2, 2, 2)), ("chain", "draw", "tree", "term"))
    write_array(group, "scale", np.zeros((1, 2)), ("chain", "draw"))
    write_texts(group, "tree", ["ash", "elm"], ["tree"])
    named = Posterior(tmp_path / "named.zarr")
    assert named.labels("effects") == ["ash,0", "ash,1", "elm,0", "elm,1"]
    assert named.labels("scale") == [""]


SHAPE = (2, 50)


@pytest.fixture
def small_posterior(tmp_path: Path) -> Posterior:
    group = open_group(tmp_path / "posterior.zarr", "w").create_group("posterior")
    values = np.arange(SHAPE[0] * SHAPE[1] * 3, dtype=np.float64).reshape(*SHAPE, 3)
    write_array(group, "a", values, (CHAIN, DRAW, "k"))
    write_array(group, "code", values[..., 0].astype(np.int32), (CHAIN, DRAW))
    return Posterior(tmp_path / "posterior.zarr")


@pytest.mark.parametrize(("kept_bytes", "num_reads"), [(2**20, 1), (0, 3)])
def test_a_small_posterior_is_read_once(
    small_posterior: Posterior, monkeypatch: pytest.MonkeyPatch, kept_bytes: int, num_reads: int
) -> None:
    monkeypatch.setattr(reader, "KEPT_BYTES", kept_bytes)
    blocks, reads = Posterior.blocks, []

    def count(self: Posterior, *arguments: object, **options: object) -> object:
        reads.append(1)
        return blocks(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Posterior, "blocks", count)
    draws = StoredDraws(small_posterior, "float32")
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
