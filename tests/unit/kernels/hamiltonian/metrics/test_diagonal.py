"""The diagonal metric: right for any diagonal normal, wherever the chains are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.diagonal import DiagonalMetric, MomentState

METRIC = DiagonalMetric()
SD = np.geomspace(1e-2, 1e2, 5)
"""Variances over eight orders, standard deviations over four."""


def of(values: np.ndarray) -> Position:
    """The same numbers (chain, dimension) as shared coordinates and as those of a single entry."""
    array = jnp.asarray(values)
    return Position(array, array[:, None, :])


def learn(position: np.ndarray, gradient: np.ndarray, batch: int) -> MomentState:
    state = METRIC.init_estimate(of(position))
    for first in range(0, len(position), batch):
        chosen = slice(first, first + batch)
        state = METRIC.update_estimate(state, of(position[chosen]), of(gradient[chosen]))
    return state


def estimate(position: np.ndarray, gradient: np.ndarray, batch: int = 4) -> np.ndarray:
    """Scale after all (sample, dimension), `batch` chains at a time; the same in both parts."""
    state = learn(position, gradient, batch)
    assert state.count == len(position)
    scale = METRIC.estimate(state)
    np.testing.assert_array_equal(scale.local[0], scale.shared)
    return np.asarray(scale.shared)


@pytest.mark.parametrize("distance", [0.0, 50.0])
@pytest.mark.parametrize("spread", [0.01, 1.0, 7.0])
def test_a_diagonal_normal_is_recovered_however_far_the_chains_are(distance: float, spread: float) -> None:
    noise = np.random.default_rng(0).standard_normal((40, len(SD)))
    position = (distance + spread * noise) * SD
    np.testing.assert_allclose(estimate(position, -position / SD**2), SD, rtol=1e-6)


def test_noise_in_the_gradient_is_tolerated() -> None:
    generator = np.random.default_rng(1)
    position = generator.standard_normal((400, len(SD))) * SD
    gradient = -position / SD**2 * (1 + 0.1 * generator.standard_normal(position.shape))
    np.testing.assert_allclose(estimate(position, gradient), SD, rtol=0.05)


def test_moments_are_those_of_all_samples_at_once() -> None:
    generator = np.random.default_rng(2)
    position, gradient = 1e3 + generator.standard_normal((21, 3)), generator.standard_normal((21, 3))
    expected = (position.var(axis=0) / gradient.var(axis=0)) ** 0.25
    for batch in (1, 4, 21):
        np.testing.assert_allclose(estimate(position, gradient, batch), expected, rtol=1e-9)


@pytest.mark.parametrize("part", ["shared", "local"])
def test_a_chain_that_is_not_finite_counts_for_nothing(part: str) -> None:
    """Not in the part where it is not finite, and not in the other."""
    generator = np.random.default_rng(3)
    position, gradient = generator.standard_normal((6, 3)), generator.standard_normal((6, 3))
    lost = of(gradient)
    spoilt = getattr(lost, part).at[2, ..., 1].set(jnp.nan)
    state = METRIC.update_estimate(METRIC.init_estimate(of(position)), of(position), lost._replace(**{part: spoilt}))
    kept = np.arange(6) != 2
    assert state.count == 5
    expected = estimate(position[kept], gradient[kept])
    for scale in METRIC.estimate(state):
        np.testing.assert_allclose(np.asarray(scale).ravel(), expected, rtol=1e-12)


def test_what_never_moved_has_a_finite_scale() -> None:
    """Padding is such: its position and its gradient stay 0."""
    scale = METRIC.estimate(learn(np.zeros((6, 2)), np.zeros((6, 2)), 2))
    for part in scale:
        assert jnp.isfinite(part).all()
        assert (part > 0).all()


def test_a_window_without_a_finite_chain_gives_a_finite_scale() -> None:
    scale = METRIC.estimate(learn(np.zeros((6, 2)), np.full((6, 2), np.nan), 2))
    assert all(jnp.isfinite(part).all() and (part > 0).all() for part in scale)


def test_the_first_metric_shrinks_with_the_gradient() -> None:
    gradient = of(np.asarray([[0.0, 3.0, 30.0], [0.0, 3.0, -40.0]]))
    scale = METRIC.init(gradient, Position(None, None))
    expected = (1 + np.asarray([0.0, 3.0, np.sqrt(1250)])) ** -0.5
    np.testing.assert_allclose(scale.shared, expected, rtol=1e-14)
    np.testing.assert_allclose(scale.local[0], expected, rtol=1e-14)


def test_a_lost_chain_does_not_spoil_the_first_metric() -> None:
    scale = METRIC.init(of(np.asarray([[1.0, np.nan], [1.0, np.inf]])), Position(None, None))
    for part in scale:
        assert jnp.isfinite(part).all()
        assert (part > 0).all()


def test_moving_and_whitening_are_inverse_and_symmetric() -> None:
    scale = Position(jnp.asarray([0.5, 3.0]), jnp.asarray([[2.0, 0.0]]))
    p = of(np.asarray([[1.0, -2.0], [0.25, 4.0]]))
    moved = METRIC.move(scale, p)
    np.testing.assert_allclose(moved.shared, p.shared * scale.shared, rtol=1e-15)
    jax.tree.map(np.testing.assert_array_equal, METRIC.whiten_gradient(scale, p), moved)
    back = METRIC.whiten_position(scale, moved)
    np.testing.assert_allclose(back.shared, p.shared, rtol=1e-15)
    # A coordinate without a scale has no distance.
    np.testing.assert_allclose(back.local, p.local * jnp.asarray([1.0, 0.0]), rtol=1e-15)


@pytest.mark.parametrize("missing", ["shared", "local"])
def test_a_part_that_is_not_there_stays_away(missing: str) -> None:
    position = of(np.random.default_rng(4).standard_normal((6, 3)))._replace(**{missing: None})
    state = METRIC.update_estimate(METRIC.init_estimate(position), position, position)
    for made in (METRIC.estimate(state), state.mean, METRIC.init(position, Position(None, None))):
        assert getattr(made, missing) is None
        assert sum(part is not None for part in made) == 1


def test_float32_keeps_its_dtype() -> None:
    one = jax.tree.map(lambda x: x.astype(jnp.float32), of(np.ones((2, 3))))
    state = METRIC.update_estimate(METRIC.init_estimate(one), one, one)
    assert {x.dtype for x in jax.tree.leaves(state._replace(count=()))} == {jnp.dtype("float32")}
    assert {x.dtype for x in jax.tree.leaves(METRIC.estimate(state))} == {jnp.dtype("float32")}
