"""The covariance that minimises the Fisher divergence."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.hamiltonian.metrics.base import fisher_root

SIZE = 6


def normal(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((SIZE, SIZE))


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_the_covariance_of_a_normal_is_found_wherever_the_draws_are(condition: float) -> None:
    rotation = np.linalg.qr(normal(0))[0]
    covariance = rotation * np.geomspace(1, condition, SIZE) @ rotation.T
    precision = np.linalg.inv(covariance)
    # Not spread as the target is.
    draws = normal(1) @ normal(1).T
    root = np.asarray(fisher_root(jnp.asarray(draws), jnp.asarray(precision @ draws @ precision)))
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-5, atol=1e-5 * condition)


def test_the_equation_is_solved() -> None:
    draws, gradients = (normal(i) @ normal(i).T + np.eye(SIZE) for i in (2, 3))
    root = np.asarray(fisher_root(jnp.asarray(draws), jnp.asarray(gradients)))
    covariance = root @ root.T
    np.testing.assert_allclose(covariance @ gradients @ covariance, draws, rtol=1e-10)
