"""Films that lie close: planted pairs are found whatever the rotation of a draw, in blocks as at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.neighbours import analysis
from bayesmesh.analyses.neighbours.analysis import embedding_of, find_neighbours
from bayesmesh.analyses.options import NeighboursOptions as Options
from bayesmesh.errors import ConfigError
from bayesmesh.models.matrix_factorization import MatrixFactorization
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.posterior.reader import Posterior

CHAINS, DRAWS, FILMS, WIDTH = 2, 30, 7, 3

Find = Callable[..., pd.DataFrame]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {"neighbours.csv": tmp_path / "neighbours.csv"}


@pytest.fixture
def embeddings() -> np.ndarray:
    """Films 1 and 4 point the same way, each draw of all films turned by a rotation of its own."""
    rng = np.random.default_rng(2)
    base = rng.normal(size=(FILMS, WIDTH))
    base[4] = 2.5 * base[1]
    noisy = base + 0.05 * rng.normal(size=(CHAINS, DRAWS, FILMS, WIDTH))
    turned, _ = np.linalg.qr(rng.normal(size=(CHAINS, DRAWS, WIDTH, WIDTH)))
    return noisy @ turned


@pytest.fixture
def bound() -> BoundModel:
    watched = np.zeros((4, FILMS), np.uint8)
    watched[:, 5], watched[:2, 1] = 1, 1
    titles = [f"Film, {n}" for n in range(FILMS)]
    shards = SimpleNamespace(
        columns={"title": titles, "film_id": list(range(10, 10 + FILMS)), "genres": [["Winter", "Mountain"]] * FILMS},
        fields={"watched": None},
        blocks=lambda: iter([{"watched": watched[:3]}, {"watched": watched[3:]}]),
    )
    model: Any = SimpleNamespace(blocks=MatrixFactorization.blocks)
    return BoundModel(model, SimpleNamespace(dtype="float64"), shards)  # type: ignore[arg-type]


@pytest.fixture
def find(tmp_path: Path, files: dict[str, Path], embeddings: np.ndarray, bound: BoundModel) -> Find:
    path = tmp_path / "posterior.zarr"
    group = open_group(path, "w").create_group("posterior")
    write_array(group, "film_embeddings", embeddings, ("chain", "draw", "film", "width"))
    write_array(group, "film_biases", embeddings[..., 0], ("chain", "draw", "film"))

    def run(**options: Any) -> pd.DataFrame:
        count = find_neighbours(bound, Posterior(path), Options(**options), files)
        table = pd.read_csv(files["neighbours.csv"])
        table.attrs["count"] = count
        return table

    return run


def test_a_planted_pair_is_found_and_agrees_with_a_direct_computation(find: Find, embeddings: np.ndarray) -> None:
    table = find(films=[1, 4, 0], num_neighbours=2)
    assert list(zip(table["film"], table["rank"], strict=True)) == [(1, 1), (1, 2), (4, 1), (4, 2), (0, 1), (0, 2)]
    first = table[table["film"] == 1].iloc[0]
    assert (first["neighbour"], first["neighbour_title"], first["neighbour_id"]) == (4, "Film, 4", 14)
    assert first["p_among_closest"] == 1
    a, b = embeddings[:, :, 1], embeddings[:, :, 4]
    direct = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    expected = [direct.mean(), *np.quantile(direct, (0.05, 0.95))]
    np.testing.assert_allclose(first[["cosine", "q5", "q95"]].to_numpy(float), expected, rtol=1e-12)
    assert first["genres"] == "Winter|Mountain"
    assert table.attrs["count"] == CHAINS * DRAWS


def test_blocks_of_one_draw_give_the_same(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, some = find(films=[1, 6]), find(films=[1], draws=20)
    monkeypatch.setattr(analysis, "BLOCK_BYTES", 1)
    pd.testing.assert_frame_equal(find(films=[1, 6]), whole)
    pd.testing.assert_frame_equal(find(films=[1], draws=20), some)
    assert some.attrs["count"] == 20


def test_films_that_do_not_exist_and_models_without_embeddings_are_refused(find: Find) -> None:
    with pytest.raises(ConfigError, match=r"key 'neighbours.films': no film 7; there are films 0 to 6"):
        find(films=[1, 7])
    model: Any = SimpleNamespace(blocks={"films": {"film_biases": 0}})
    with pytest.raises(ConfigError, match="key 'neighbours': model SimpleNamespace has no latent"):
        embedding_of(model, {"film_biases": np.zeros(3)})
