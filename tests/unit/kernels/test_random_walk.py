"""What is particular to random-walk Metropolis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.random_walk import Options, RandomWalk
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS = 4_000
SCALE = jnp.asarray([0.5, 2.0])
FLAT = FunctionTarget(lambda q: 0.0 * q.sum())
KERNEL = RandomWalk(Options(), 0)


def step(target: Any, position: jax.Array, step_size: float) -> Any:
    keys = jax.random.split(jax.random.key(1), len(position))
    tuning = HamiltonianTuning(jnp.asarray(step_size), Position(SCALE, None), ())

    def one(q: jax.Array) -> Any:
        state = KERNEL.init(keys, Position(q, None), target)
        return state, *KERNEL.step(keys, state, target, tuning)

    return jax.jit(one)(position)


def test_the_proposal_is_normal_with_the_scale_of_the_metric() -> None:
    """On a flat density every proposal is taken."""
    before, after, info = step(FLAT, jnp.full((NUM_CHAINS, 2), 3.0), 0.3)
    assert info.accepted.all()
    move = np.asarray(after.position.shared - before.position.shared)
    expected = np.diag((0.3 * np.asarray(SCALE)) ** 2)
    np.testing.assert_allclose(np.cov(move.T), expected, atol=5 * np.sqrt(2 / NUM_CHAINS) * expected.max())
    assert (np.abs(move.mean(axis=0)) < 5 * 0.3 * SCALE / np.sqrt(NUM_CHAINS)).all()


def test_acceptance_is_the_metropolis_rule() -> None:
    """With the densities at both ends, and nothing else: the proposal is symmetric."""
    target = FunctionTarget(lambda q: -0.5 * jnp.sum(q**2))
    before, after, info = step(target, jnp.full((NUM_CHAINS, 2), 1.0), 1.0)
    rate = np.asarray(info.acceptance_rate)
    assert 0.2 < rate.mean() < 0.9, "this test wants rejections"
    z = (np.asarray(info.accepted) - rate).sum() / np.sqrt((rate * (1 - rate)).sum())
    assert abs(z) < 4.5
    taken = np.asarray(info.accepted)
    ratio = np.exp(np.minimum(after.log_likelihood - before.log_likelihood, 0))
    np.testing.assert_allclose(ratio[taken], rate[taken], rtol=1e-12)
    np.testing.assert_array_equal((after.position.shared != before.position.shared).any(axis=1), taken)
