"""Lists for one user: which draws are read, which films a text names, and the order of the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.analyses.fold_in.draws import FILM_LATENTS, choose_runs, read_factors
from bayesmesh.analyses.recommendation.film_lists import list_films
from bayesmesh.analyses.recommendation.named_films import read_watched
from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import chunk_file, create_array, open_group
from bayesmesh.store.posterior.reader import Posterior, open_posterior

COLUMNS = {
    "film_id": [5, 6, 9, 1984],
    "title": ["Matrix, The (1999)", "Alien (1979)", "Solaris (1972)", "Solaris (2002)"],
}


def test_draws_are_those_stored(posterior: Posterior, latents: Mapping[str, np.ndarray]) -> None:
    found = read_factors(posterior, 4, 1000)
    for name, values in latents.items():
        expected = values.reshape(-1, *values.shape[2:])
        np.testing.assert_array_equal(getattr(found, name), expected[:, 4] if name.startswith("user") else expected)
    fewer = read_factors(posterior, None, 5)
    assert fewer.num_draws == 5
    assert not fewer.user_biases.size


@pytest.fixture
def chunked(tmp_path: Path) -> Posterior:
    """Two chains of 100 draws in chunks of ten."""
    group = open_group(tmp_path / "chunked.zarr", "w").create_group("posterior")
    for name, shape in zip(FILM_LATENTS, ((2, 100, 6, 2), (2, 100, 6)), strict=True):
        dims = ("chain", "draw", *(f"{name}_{axis}" for axis in range(len(shape) - 2)))
        array = create_array(group, name, shape, "float32", dims, chunks=(1, 10, *shape[2:]))
        array[...] = np.broadcast_to(np.arange(100).reshape(100, *[1] * (len(shape) - 2)), shape)
    return open_posterior(tmp_path / "chunked.zarr")


def test_only_chunks_that_are_read_are_decoded(chunked: Posterior) -> None:
    run_bytes = 2 * 10 * (12 + 6) * 4
    found = read_factors(chunked, None, 1000, read_bytes=3 * run_bytes)
    # Three chunks of each chain, the first and the last among them.
    expected = np.concatenate([np.arange(10), np.arange(40, 50), np.arange(90, 100)])
    np.testing.assert_array_equal(found.film_biases[:, 0], np.tile(expected, 2))
    for chunk, is_read in ((2, False), (9, True)):
        file = chunk_file(chunked.path / "posterior" / "film_embeddings", (1, chunk, 0, 0))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        if is_read:
            with pytest.raises(StoreError, match="film_embeddings: cannot be read"):
                read_factors(chunked, None, 1000, read_bytes=3 * run_bytes)
        else:
            again = read_factors(chunked, None, 1000, read_bytes=3 * run_bytes)
            np.testing.assert_array_equal(again.film_embeddings, found.film_embeddings)


def test_all_runs_are_read_where_they_fit() -> None:
    assert choose_runs(25, 10, 100) == [slice(0, 10), slice(10, 20), slice(20, 25)]


def test_draws_that_are_not_finite_are_refused(
    write_posterior: Callable[[Mapping[str, np.ndarray]], Posterior], latents: dict[str, np.ndarray]
) -> None:
    latents["film_biases"][1, 3, 2] = np.nan
    with pytest.raises(StoreError, match="'film_biases' has draws that are not finite"):
        read_factors(write_posterior(latents), None, 1000)


def test_films_are_named_by_id_or_title(tmp_path: Path) -> None:
    path = tmp_path / "watched.txt"
    path.write_text("# seen\n\n  THE   matrix \nsolaris (2002)\n6\n", encoding="utf-8")
    assert read_watched(path, COLUMNS, 4) == [0, 3, 1]


@pytest.fixture
def logits() -> np.ndarray:
    """Of 400 draws of six films: the last is the best on average, the third is the most often first."""
    generator = np.random.default_rng(1)
    logits = generator.normal([-3, -2, -1, -2, 5, 0.3], 0.3, (400, 6))
    logits[:, 2] += np.where(np.arange(400) % 5 < 3, 3.0, -6.0)
    return logits


def test_lists_equal_the_direct_computation(logits: np.ndarray) -> None:
    is_watched = np.array([False, False, False, False, True, False])
    orders = {
        order: list_films(logits, is_watched, 3, 2, order, np.random.default_rng(0))  # type: ignore[arg-type]
        for order in ("mean", "best")
    }
    assert [film.film for film in orders["mean"]] == [5, 2, 1] or [f.film for f in orders["mean"]] == [5, 2, 3]
    assert orders["best"][0].film == 2
    probability = 1 / (1 + np.exp(-logits))
    free = np.where(is_watched, -np.inf, logits)
    for film in orders["mean"]:
        np.testing.assert_allclose(film.mean, probability[:, film.film].mean())
        np.testing.assert_allclose(
            (film.low, film.high), np.quantile(probability[:, film.film], [0.05, 0.95]), rtol=1e-3
        )
        assert film.p_best == (free.argmax(axis=1) == film.film).mean()
        assert film.p_top == (np.argsort(-free, axis=1)[:, :2] == film.film).any(axis=1).mean()


def test_thompson_lists_follow_single_draws(logits: np.ndarray) -> None:
    """Over many lists, the first film is the best one as often as it is the best in a draw."""
    free, generator = np.zeros(6, bool), np.random.default_rng(2)
    free[4] = True
    first = [list_films(logits, free, 2, 2, "thompson", generator)[0].film for _ in range(400)]
    share = (np.where(free, -np.inf, logits).argmax(axis=1) == 2).mean()
    assert abs(np.mean(np.array(first) == 2) - share) < 4 * np.sqrt(share * (1 - share) / 400)
