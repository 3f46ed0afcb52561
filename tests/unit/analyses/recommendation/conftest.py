"""A small watch matrix with a split, a posterior around its truth, and everything computed directly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np
import pytest

from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.sources.films import Options as FilmOptions
from bayesmesh.data.sources.films import Source
from bayesmesh.models.matrix_factorization import MatrixFactorization, Options
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior, open_posterior

NUM_USERS, NUM_FILMS, WIDTH, NUM_CHAINS, NUM_DRAWS = 29, 17, 3, 2, 11


@pytest.fixture(autouse=True, scope="session")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


@pytest.fixture
def layout(tmp_path: Path) -> ExperimentLayout:
    return ExperimentLayout(tmp_path, "experiment")


@pytest.fixture
def files(layout: ExperimentLayout) -> dict[str, Path]:
    return declared("recommendation").files(layout.folder)


@pytest.fixture
def dataset() -> Dataset:
    options = FilmOptions(num_users=NUM_USERS, num_films=NUM_FILMS, width=WIDTH, offset=-0.5)
    return Source(options).read(Path())


@pytest.fixture
def write_shards(tmp_path: Path) -> Callable[[Dataset, float], Shards]:
    def write(dataset: Dataset, held_out_fraction: float) -> Shards:
        layout = DataLayout(tmp_path, dataset.kind, str(held_out_fraction))
        shard(dataclasses.replace(dataset, truth={}), DataSettings(held_out_fraction=held_out_fraction), layout)
        return Shards(layout.shards)

    return write


@pytest.fixture
def shards(write_shards: Callable[[Dataset, float], Shards], dataset: Dataset) -> Shards:
    return write_shards(dataset, 0.3)


@pytest.fixture
def write_posterior(layout: ExperimentLayout) -> Callable[[Mapping[str, np.ndarray]], Posterior]:
    def write(latents: Mapping[str, np.ndarray]) -> Posterior:
        group = open_group(layout.posterior, "w").create_group("posterior")
        for name, values in latents.items():
            dims = (CHAIN, DRAW, *(f"{name}_dim_{axis}" for axis in range(values.ndim - 2)))
            write_array(group, name, values, dims)
        return open_posterior(layout.posterior)

    return write


@pytest.fixture
def latents(dataset: Dataset) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    return {
        name: (value + 0.4 * generator.standard_normal((NUM_CHAINS, NUM_DRAWS, *value.shape))).astype(np.float32)
        for name, value in dataset.truth.items()
    }


@pytest.fixture
def posterior(
    write_posterior: Callable[[Mapping[str, np.ndarray]], Posterior], latents: dict[str, np.ndarray]
) -> Posterior:
    return write_posterior(latents)


@pytest.fixture
def model(shards: Shards) -> MatrixFactorization:
    return MatrixFactorization(Options(width=WIDTH), shards.spec())


@pytest.fixture
def logits(latents: dict[str, np.ndarray]) -> np.ndarray:
    """Logits of all draws, (draws, users, films) float64, draw by draw and then chain by chain."""
    flat = {n: np.swapaxes(v, 0, 1).reshape(-1, *v.shape[2:]).astype(np.float64) for n, v in latents.items()}
    product = np.einsum("duk,dfk->duf", flat["user_embeddings"], flat["film_embeddings"])
    return product + flat["user_biases"][:, :, None] + flat["film_biases"][:, None, :]
