"""The multilayer perceptron against NumPy, and its predictions under exchanges of hidden units."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.models.neural_network import ACTIVATIONS, NeuralNetwork

NUM_ROWS = 9
NUMPY = {"silu": lambda x: x * special.expit(x), "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


def make(**options: Any) -> tuple[NeuralNetwork, dict[str, Any], dict[str, Any]]:
    """Return a network on two numbers and a vector of three, its latents and rows."""
    random = np.random.default_rng(2)
    rows = {
        "x": random.standard_normal(NUM_ROWS), "z": random.standard_normal(NUM_ROWS), "v": random.standard_normal((NUM_ROWS, 3)),
        "kind": random.integers(0, 3, NUM_ROWS).astype(np.int32), "y": random.standard_normal(NUM_ROWS),
    }  # fmt: skip
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    spec = DataSpec(NUM_ROWS, fields, {}, "float64", variables={"kind": Variable("category", levels=("a", "b", "c"))})
    own = {"features": ["x", "v", "z"], "outcome": "kind", "widths": [4, 3], **options}
    model = NeuralNetwork(options_class("model", "neural_network")(**own), spec)
    return model, model.prior(spec).sample(seed=jax.random.key(1)), {k: jnp.asarray(v) for k, v in rows.items()}


def outputs(z: dict[str, Any], rows: dict[str, Any], activation: str) -> np.ndarray:
    layer = np.concatenate([rows["x"][:, None], rows["v"], rows["z"][:, None]], axis=1)
    for i in range(3):
        layer = layer @ np.asarray(z[f"weights_{i}"]) + np.asarray(z[f"biases_{i}"])
        layer = layer if i == 2 else NUMPY[activation](layer)
    return layer


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_labels_have_the_probabilities_of_the_network(activation: str) -> None:
    model, latents, rows = make(activation=activation)
    logits = outputs(latents, rows, activation)
    expected = special.log_softmax(logits, axis=1)[np.arange(NUM_ROWS), rows["kind"]]
    np.testing.assert_allclose(model.log_likelihood(latents, rows), expected, rtol=1e-10)
    np.testing.assert_allclose(
        model.summaries(latents, rows)["logits"], logits - logits.mean(1, keepdims=True), rtol=1e-9, atol=1e-12
    )


def test_numbers_are_normal_around_the_network() -> None:
    model, latents, rows = make(task="regression", outcome="y", noise_scale=2.0)
    expected = stats.norm(outputs(latents, rows, "silu")[:, 0], latents["noise"]).logpdf(rows["y"])
    np.testing.assert_allclose(model.log_likelihood(latents, rows), expected, rtol=1e-10)


def test_exchanging_hidden_units_changes_weights_and_no_summary() -> None:
    model, latents, rows = make()
    order = jnp.asarray([2, 0, 3, 1])
    other = {
        **latents,
        "weights_0": latents["weights_0"][:, order],
        "biases_0": latents["biases_0"][order],
        "weights_1": latents["weights_1"][order],
    }
    assert not np.allclose(other["weights_0"], latents["weights_0"])
    for name, value in model.summaries(latents, rows).items():
        np.testing.assert_allclose(model.summaries(other, rows)[name], value, rtol=1e-10)
