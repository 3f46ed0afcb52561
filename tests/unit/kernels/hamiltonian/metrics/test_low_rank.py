"""The low-rank metric: right for a normal that is diagonal but for a few directions, wherever the chains are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.blocks import HamiltonianSettings
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.low_rank import Buffer, LowRankMetric

SIZE, NUM_ENTRIES, WIDTH, NUM_CHAINS, RANK = 40, 5, 2, 4, 3
NUM_COORDINATES = SIZE + NUM_ENTRIES * WIDTH
METRIC = LowRankMetric(HamiltonianSettings(metric_rank=RANK))
ESTIMATE = jax.jit(METRIC.estimate)
SCALE = np.geomspace(0.1, 10, NUM_COORDINATES)
DIRECTIONS = np.linalg.qr(np.random.default_rng(0).standard_normal((NUM_COORDINATES, RANK)))[0].T
VARIANCES = np.asarray([400.0, 0.01, 30.0])
COVARIANCE = (np.eye(NUM_COORDINATES) + DIRECTIONS.T @ np.diag(VARIANCES - 1) @ DIRECTIONS) * np.outer(SCALE, SCALE)


def of(values: np.ndarray, dtype: str = "float64") -> Position:
    """Numbers (chain, coordinate) as shared coordinates and as those of entries."""
    array = jnp.asarray(values, dtype)
    return Position(array[:, :SIZE], array[:, SIZE:].reshape(-1, NUM_ENTRIES, WIDTH))


def flat(position: Position) -> np.ndarray:
    return np.concatenate([np.asarray(x, np.float64).reshape(len(x), -1) for x in position], axis=1)


def fill(num_points: int, dtype: str = "float64", metric: LowRankMetric = METRIC) -> Buffer:
    """The estimate after draws of a normal with that covariance, a few chains at a time."""
    draws = np.random.default_rng(1).multivariate_normal(np.full(NUM_COORDINATES, 3.0), COVARIANCE, num_points)
    gradients = -(draws - 3.0) @ np.linalg.inv(COVARIANCE)
    estimate: Any = None
    update = jax.jit(metric.update_estimate)
    for i in range(0, num_points, NUM_CHAINS):
        position, gradient = (of(x[i : i + NUM_CHAINS], dtype) for x in (draws, gradients))
        estimate = metric.init_estimate(position) if estimate is None else estimate
        estimate = update(estimate, position, gradient)
    return estimate


def learn(num_points: int, dtype: str) -> Any:
    return ESTIMATE(fill(num_points, dtype))


def matrix(metric: LowRankMetric, data: Any, dtype: str = "float64") -> np.ndarray:
    """A, from what it makes of the unit vectors."""
    return flat(metric.move(data, of(np.eye(NUM_COORDINATES), dtype))).T


def condition(data: Any, dtype: str = "float64") -> float:
    """Condition number of the target in the coordinates of the metric."""
    white = np.linalg.solve(matrix(METRIC, data, dtype), np.linalg.cholesky(COVARIANCE))
    return float(np.linalg.cond(white)) ** 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_few_directions_are_recovered(dtype: str) -> None:
    """From fewer points than there are coordinates; a diagonal cannot do better than half of the 40,000."""
    data = learn(32, dtype)
    assert {x.dtype.name for x in jax.tree.leaves((data.scale, data.directions))} == {dtype}
    diagonal = data._replace(stretch=jnp.ones_like(data.stretch))
    assert condition(diagonal, dtype) > 1000
    assert condition(data, dtype) < 30


def test_directions_are_orthonormal_and_the_maps_inverse_in_float32() -> None:
    data = learn(64, "float32")
    rows = flat(data.directions)
    np.testing.assert_allclose(rows @ rows.T, np.eye(RANK), atol=1e-5)
    momentum = of(np.random.default_rng(3).standard_normal((7, NUM_COORDINATES)), "float32")
    back = METRIC.whiten_position(data, METRIC.move(data, momentum))
    np.testing.assert_allclose(flat(back), flat(momentum), atol=1e-3)


def test_what_is_diagonal_needs_no_direction() -> None:
    draws = np.random.default_rng(4).standard_normal((32, NUM_COORDINATES)) * SCALE
    estimate = METRIC.init_estimate(of(draws))
    data = ESTIMATE(METRIC.update_estimate(estimate, of(draws), of(-draws / SCALE**2)))
    np.testing.assert_array_equal(data.stretch, 1)
    np.testing.assert_array_equal(flat(data.directions), 0)
    np.testing.assert_allclose(matrix(METRIC, data), np.diag(SCALE), rtol=1e-6)


def test_memory_does_not_grow_and_the_points_are_spread_over_the_window() -> None:
    """Of 100 iterations of 4 chains, 8 slots keep those at multiples of a power of two."""
    estimate = fill(400)
    assert estimate.is_point.shape == (8, NUM_CHAINS)
    assert (int(estimate.num_iterations), int(estimate.stride)) == (100, 16)
    np.testing.assert_array_equal(estimate.is_point.all(axis=1), [*[True] * 7, False])
    draws = np.random.default_rng(1).multivariate_normal(np.full(NUM_COORDINATES, 3.0), COVARIANCE, 400)
    kept = draws.reshape(100, NUM_CHAINS, -1)[::16]
    np.testing.assert_array_equal(estimate.draws.shared[:7], kept[..., :SIZE])
