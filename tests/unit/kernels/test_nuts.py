"""What is particular to NUTS."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.base import Density, Position
from bayesmesh.kernels.nuts import Nuts, NutsTuning, Options

NUM_CHAINS = 50


def log_density(position: Position) -> Density:
    """A standard normal for half of the chains, and one with standard deviation 10 for the others."""
    sd = jnp.where(jnp.arange(NUM_CHAINS) < NUM_CHAINS // 2, 1.0, 10.0)[:, None]
    value = -0.5 * jnp.sum((position["x"] / sd) ** 2, axis=1)
    return Density(0 * value, value, {"x": -position["x"] / sd**2})


@pytest.fixture(scope="module")
def info():
    kernel = Nuts(Options(max_tree_depth=6), 0)
    start = jax.random.normal(jax.random.key(0), (NUM_CHAINS, 3), jnp.float64)
    tuning = NutsTuning(jnp.asarray(0.2), {"x": jnp.ones(3)})
    keys = jax.random.split(jax.random.key(1), NUM_CHAINS)
    return jax.jit(lambda q: kernel.step(keys, kernel.init(q, log_density), log_density, tuning)[1])({"x": start})


def test_trajectories_end_where_they_turn(info) -> None:
    """About half a period, pi times the standard deviation, and at most the allowed depth."""
    narrow, wide = np.split(0.2 * np.asarray(info.num_leapfrog_steps), 2)
    assert 0.5 * np.pi < narrow.mean() < 2 * np.pi
    np.testing.assert_allclose(wide, 0.2 * 63)
    assert (np.asarray(info.tree_depth)[NUM_CHAINS // 2 :] == 6).all()


def test_a_transition_costs_its_longest_trajectory(info) -> None:
    assert info.n_steps == info.num_leapfrog_steps.max() == 63
    assert (info.num_leapfrog_steps < 2 ** (np.asarray(info.tree_depth) + 1)).all()
    assert (np.asarray(info.acceptance_rate) > 0.95).all()
