"""Joining chain groups: links and not copies, only what was asked for, and nothing invented."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.posterior.joining import join_groups
from bayesmesh.store.posterior.reader import open_posterior

Advance = Callable[..., ChainStore]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory, advance: Advance) -> Path:
    """Three groups of two chains, ten draws in segments of four: the last shard is not full."""
    sampled = tmp_path_factory.mktemp("sampled")
    folders = [sampled / f"group-{g:03d}" for g in range(3)]
    for folder in folders:
        advance(folder, 10)
    # Told apart by the first number of their first draw.
    for g, folder in enumerate(folders):
        array = open_group(folder / "draws.zarr", "a")["posterior/weights"]
        array[:, 0, 0, 0] = np.array([-1.0 - g, -10.0 - g], np.float32)
    return sampled


@pytest.fixture
def groups(tmp_path: Path, sampled: Path) -> list[Path]:
    names = sorted(path.name for path in sampled.iterdir())
    return [shutil.copytree(sampled / name, tmp_path / name) / "draws.zarr" for name in names]


@pytest.fixture
def join(tmp_path: Path, groups: list[Path]) -> Callable[..., Path]:
    def join(draws: int, warmup: int = 4) -> Path:
        path = tmp_path / "posterior.zarr"
        wanted = {"posterior": draws, "sample_stats": draws, "warmup_sample_stats": warmup}
        join_groups(open_group(path, "w"), path, groups, wanted)
        return path

    return join


@pytest.fixture
def expected(expected_draws: Callable[[int], np.ndarray]) -> np.ndarray:
    """All ten draws of all six chains."""
    joined = np.concatenate([expected_draws(10)] * 3)
    joined[:, 0, 0, 0] = [-1, -10, -2, -11, -3, -12]
    return joined


def shards_of(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("c/**/*") if p.is_file() and p.parent.name != "c")


@pytest.mark.parametrize("draws", [1, 4, 5, 8, 9, 10])
def test_groups_lie_side_by_side_along_the_chains(join: Callable[..., Path], expected: np.ndarray, draws: int) -> None:
    posterior = open_posterior(join(draws))
    assert (posterior.num_chains, posterior.num_draws) == (6, draws)
    assert posterior.latents == ["weights"]
    np.testing.assert_array_equal(posterior.array("posterior", "weights")[...], expected[:, :draws])
    assert posterior.array("sample_stats", "diverging").shape == (6, draws)
    assert posterior.array("warmup_sample_stats", "diverging").shape == (6, 4)
    (block,) = posterior.blocks()
    np.testing.assert_array_equal(block["weights"], np.swapaxes(expected[:, :draws], 0, 1).reshape(-1, 2, 3))


def test_shards_are_links_and_no_more_than_needed(join: Callable[..., Path], groups: list[Path]) -> None:
    path = join(5)
    linked = shards_of(path / "posterior" / "weights")
    assert len(linked) == 3 * 2
    for file in linked:
        group, shard = file.relative_to(path / "posterior" / "weights" / "c").parts[:2]
        source = groups[int(group)] / "posterior" / "weights" / "c" / "0" / shard / "0" / "0"
        assert os.stat(file).st_nlink == 2
        assert file.samefile(source)


@pytest.mark.parametrize("error", [OSError(18, "Invalid cross-device link"), PermissionError(1, "not permitted")])
def test_where_links_cannot_be_made_shards_are_copied(
    join: Callable[..., Path], expected: np.ndarray, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    link = os.link

    def refuse(source: Any, target: Any) -> None:
        if Path(source).suffix != ".partial":
            raise error
        link(source, target)  # Zarr's own, for new metadata

    monkeypatch.setattr(os, "link", refuse)
    path = join(10)
    assert {os.stat(file).st_nlink for file in shards_of(path)} == {1}
    np.testing.assert_array_equal(open_posterior(path).array("posterior", "weights")[...], expected)


def test_extending_the_chains_leaves_a_joined_posterior_as_it_is(
    tmp_path: Path, join: Callable[..., Path], advance: Advance, read_tree: Callable[[Path], Mapping[str, bytes]]
) -> None:
    """The last shard is shared and is then filled up: it is replaced, and not written in place."""
    advance(tmp_path / "group-009", 10)
    draws = tmp_path / "group-009" / "draws.zarr"
    join_groups(open_group(tmp_path / "p.zarr", "w"), tmp_path / "p.zarr", [draws], {"posterior": 10})
    before = read_tree(tmp_path / "p.zarr")
    advance(tmp_path / "group-009", 12)
    assert read_tree(tmp_path / "p.zarr") == before


def test_what_is_longer_than_committed_is_not_seen(
    join: Callable[..., Path], groups: list[Path], expected: np.ndarray
) -> None:
    for path in groups:
        open_group(path, "a")["posterior/weights"].resize((2, 50, 2, 3))
    np.testing.assert_array_equal(open_posterior(join(10)).array("posterior", "weights")[...], expected)


def test_more_draws_than_are_there(join: Callable[..., Path]) -> None:
    """The last shard has room for them, and would give zeros."""
    with pytest.raises(StoreError, match=r"group-000.*holds 10 draws, not 11\n  remedy: sample this group again"):
        join(11)


def test_missing_shard_is_named(join: Callable[..., Path], groups: list[Path]) -> None:
    (groups[1] / "posterior" / "weights" / "c" / "0" / "1" / "0" / "0").unlink()
    with pytest.raises(StoreError, match=r"group-001.*c/0/1/0/0: is missing"):
        join(10)


@pytest.mark.parametrize(
    "change",
    [
        ('"data_type": "float32"', '"data_type": "int32"'),
        ('"checksum": true', '"checksum": false'),
        ('"fill_value": 0.0', '"fill_value": 1.0'),
    ],
)
def test_groups_of_another_layout_are_refused(
    join: Callable[..., Path], groups: list[Path], change: tuple[str, str]
) -> None:
    about = groups[1] / "posterior" / "weights" / "zarr.json"
    content = json.dumps(json.loads(about.read_text()))
    assert change[0] in content
    about.write_text(content.replace(*change))
    with pytest.raises(StoreError, match=r"group-001.*posterior/weights has another layout than in .*group-000"):
        join(10)


def test_xarray_reads_it_without_us(join: Callable[..., Path], expected: np.ndarray) -> None:
    with xr.open_datatree(join(9), engine="zarr", consolidated=False) as tree:
        weights = tree["posterior"]["weights"]
        assert weights.dims == ("chain", "draw", "weights_dim_0", "weights_dim_1")
        np.testing.assert_array_equal(weights.values, expected[:, :9])
        np.testing.assert_array_equal(tree["posterior"]["chain"], np.arange(6))
        np.testing.assert_array_equal(tree["sample_stats"]["draw"], np.arange(9))
        assert not tree["sample_stats"]["diverging"].values.any()
        assert tree["warmup_sample_stats"]["diverging"].shape == (6, 4)
