"""A small softmax posterior, and averages over it computed directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np
import pytest

from bayesmesh.config.declarations import declared
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.softmax_regression import Options, SoftmaxRegression
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior, open_posterior

NUM_FEATURES, NUM_CLASSES, NUM_ROWS = 6, 3, 41


@pytest.fixture(autouse=True, scope="session")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


@pytest.fixture
def layout(tmp_path: Path) -> ExperimentLayout:
    return ExperimentLayout(tmp_path, "experiment")


@pytest.fixture
def files(layout: ExperimentLayout) -> dict[str, Path]:
    return declared("averaging").files(layout.folder)


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
def spec() -> DataSpec:
    fields = {"features": FieldSpec((NUM_FEATURES,), "uint8"), "label": FieldSpec((), "uint8")}
    return DataSpec(100, fields, {"num_classes": NUM_CLASSES, "feature_scale": 16}, "float32")


@pytest.fixture
def model(spec: DataSpec) -> SoftmaxRegression:
    return SoftmaxRegression(Options(), spec)


@pytest.fixture
def latents() -> dict[str, np.ndarray]:
    """Two chains of 7 draws, far apart, so that averaging matters."""
    generator = np.random.default_rng(1)
    weights = 4 * generator.standard_normal((2, 7, NUM_FEATURES, NUM_CLASSES))
    biases = generator.standard_normal((2, 7, NUM_CLASSES))
    return {"weights": weights.astype(np.float32), "biases": biases.astype(np.float32)}


@pytest.fixture
def test_rows() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(2)
    features = generator.integers(0, 17, (NUM_ROWS, NUM_FEATURES))
    return {
        "features": features.astype(np.uint8),
        "label": generator.integers(0, NUM_CLASSES, NUM_ROWS).astype(np.uint8),
    }


@pytest.fixture
def direct(latents: dict[str, np.ndarray], test_rows: dict[str, np.ndarray]) -> np.ndarray:
    """Probabilities of every draw, (draws, rows, classes) float64, draw by draw and then chain by chain."""
    weights, biases = (np.swapaxes(latents[name], 0, 1).astype(np.float64) for name in ("weights", "biases"))
    logits = np.einsum("rf,dcfk->dcrk", test_rows["features"] / 16, weights) + biases[:, :, None, :]
    logits = logits.reshape(-1, NUM_ROWS, NUM_CLASSES)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
