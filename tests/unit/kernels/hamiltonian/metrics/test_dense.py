"""The dense metric: right for any normal of the shared coordinates, wherever the chains are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.dense import Dense, DenseMetric
from bayesmesh.kernels.hamiltonian.metrics.diagonal import DiagonalMetric

METRIC, NO_MASK = DenseMetric(), Position(None, None)
SIZE, NUM_CHAINS = 8, 4
ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((SIZE, SIZE)))[0]
LOCAL_SD = np.asarray([[0.1, 1.0], [10.0, 3.0]])


def covariance(condition: float) -> np.ndarray:
    return (ROTATION * np.geomspace(1, condition, SIZE)) @ ROTATION.T


def points(condition: float, num_points: int, centre: float = 0.0, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a standard normal, whatever the target is, and the gradients of a normal with that covariance."""
    draws = centre + np.random.default_rng(seed).standard_normal((num_points, SIZE))
    return draws, -draws @ np.linalg.inv(covariance(condition))


def learn(draws: np.ndarray, gradients: np.ndarray, dtype: str = "float64") -> Dense:
    """The metric after a window, a few chains at a time; local coordinates have their own scales."""
    local = LOCAL_SD * np.random.default_rng(2).standard_normal((len(draws), 2, 2))
    estimate: Any = None
    update = jax.jit(METRIC.update_estimate)
    for i in range(0, len(draws), NUM_CHAINS):
        at = slice(i, i + NUM_CHAINS)
        position = Position(jnp.asarray(draws[at], dtype), jnp.asarray(local[at], dtype))
        gradient = Position(jnp.asarray(gradients[at], dtype), jnp.asarray(-local[at] / LOCAL_SD**2, dtype))
        estimate = METRIC.init_estimate(position) if estimate is None else estimate
        estimate = update(estimate, position, gradient)
    return jax.jit(METRIC.estimate)(estimate)


def whitened(metric: Dense, condition: float) -> np.ndarray:
    """Variances of the target along its principal axes as the metric sees them, over what they are."""
    root = np.asarray(metric.root, np.float64)
    return np.diagonal(ROTATION.T @ root @ root.T @ ROTATION) / np.geomspace(1, condition, SIZE)


@pytest.mark.parametrize("centre", [0.0, 100.0])
@pytest.mark.parametrize("condition", [1.0, 30.0, 1e3])
def test_any_normal_is_recovered_from_a_few_draws(condition: float, centre: float) -> None:
    metric = learn(*points(condition, 5 * SIZE, centre))
    np.testing.assert_allclose(whitened(metric, condition), 1, rtol=0.05)
    assert not np.triu(metric.root, 1).any()


@pytest.mark.parametrize("condition", [30.0, 1e3])
def test_float32_recovers_it_as_well(condition: float) -> None:
    metric = learn(*points(condition, 5 * SIZE, centre=10.0), "float32")
    assert {x.dtype for x in jax.tree.leaves(metric)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(whitened(metric, condition), 1, rtol=0.05)


def test_fewer_points_than_coordinates_improve_on_the_diagonal() -> None:
    draws, gradients = points(1e3, NUM_CHAINS)
    of = [Position(jnp.asarray(x), None) for x in (draws, gradients)]
    diagonal = DiagonalMetric()
    scale = diagonal.estimate(diagonal.update_estimate(diagonal.init_estimate(of[0]), *of)).shared
    root = np.linalg.cholesky(covariance(1e3))
    before, after = (np.linalg.cond(np.linalg.solve(a, root)) for a in (np.diag(scale), learn(draws, gradients).root))
    assert after < 0.7 * before


def test_local_coordinates_have_the_diagonal_metric() -> None:
    draws, gradients = points(10.0, 40)
    metric = learn(draws, gradients)
    assert metric.scale.shared is None
    np.testing.assert_allclose(metric.scale.local, LOCAL_SD, rtol=1e-6)


def test_it_starts_as_the_diagonal_metric_does() -> None:
    gradient = Position(jnp.asarray([[0.0, 3.0, 30.0]]), jnp.ones((1, 2, 2)))
    first, diagonal = METRIC.init(gradient, NO_MASK), DiagonalMetric().init(gradient, NO_MASK)
    np.testing.assert_array_equal(first.root, jnp.diag(diagonal.shared))
    np.testing.assert_array_equal(first.scale.local, diagonal.local)


def test_a_window_without_a_factor_in_float64_leaves_the_diagonal() -> None:
    # Few points from far away: the floor of the scatter vanishes beside them.
    draws, gradients = points(1e3, NUM_CHAINS)
    metric = learn(1e12 * draws, 1e12 * gradients)
    assert np.isfinite(metric.root).all()
    assert (np.diagonal(metric.root) > 0).all()
