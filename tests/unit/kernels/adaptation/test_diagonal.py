"""The diagonal scale: right for any diagonal normal, wherever the chains are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.diagonal import estimate_scale, init_moments, update_moments

SD = np.geomspace(1e-2, 1e2, 5)
"""Variances over eight orders, standard deviations over four."""


def estimate(position: np.ndarray, gradient: np.ndarray, batch: int = 4) -> np.ndarray:
    """Scale after all (sample, dimension), `batch` chains at a time."""
    one = {"x": jnp.ones(position.shape[1])}
    state = init_moments(one)
    for first in range(0, len(position), batch):
        chosen = slice(first, first + batch)
        state = update_moments(state, {"x": jnp.asarray(position[chosen])}, {"x": jnp.asarray(gradient[chosen])})
    assert state.count == len(position)
    return np.asarray(estimate_scale(state, one)["x"])


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


def test_a_chain_that_is_not_finite_counts_for_nothing() -> None:
    generator = np.random.default_rng(3)
    position, gradient = generator.standard_normal((6, 3)), generator.standard_normal((6, 3))
    lost = gradient.copy()
    lost[2, 1] = np.nan
    state = update_moments(init_moments({"x": jnp.ones(3)}), {"x": jnp.asarray(position)}, {"x": jnp.asarray(lost)})
    kept = np.arange(6) != 2
    assert state.count == 5
    np.testing.assert_allclose(
        estimate_scale(state, {"x": jnp.ones(3)})["x"], estimate(position[kept], gradient[kept]), rtol=1e-12
    )


def test_padding_has_no_scale_and_what_never_moved_has_a_finite_one() -> None:
    state = init_moments({"x": jnp.ones(2)})
    for _ in range(3):
        state = update_moments(state, {"x": jnp.zeros((2, 2))}, {"x": jnp.zeros((2, 2))})
    scale = estimate_scale(state, {"x": jnp.asarray([1.0, 0.0])})["x"]
    assert jnp.isfinite(scale).all()
    assert scale[0] > 0
    assert scale[1] == 0


def test_float32_keeps_its_dtype() -> None:
    one = {"x": jnp.ones(3, jnp.float32)}
    state = update_moments(
        init_moments(one), {"x": jnp.ones((2, 3), jnp.float32)}, {"x": jnp.ones((2, 3), jnp.float32)}
    )
    assert {x.dtype for x in jax.tree.leaves(state._replace(count=state.mean["x"]))} == {jnp.dtype("float32")}
    assert estimate_scale(state, one)["x"].dtype == jnp.float32
