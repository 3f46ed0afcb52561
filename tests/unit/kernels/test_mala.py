"""What is particular to the Metropolis-adjusted Langevin algorithm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.mala import Mala, Options
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, STEP = 4_000, 0.8
SCALE = np.asarray([0.5, 2.0])
TARGET = FunctionTarget(lambda q: -0.25 * jnp.sum(q**4), lambda q: 0.3 * q[0] * q[1])
KERNEL = Mala(Options(), 0)


def gradient(q: np.ndarray) -> np.ndarray:
    return -(q**3) + 0.3 * q[:, ::-1]


def log_proposal(to: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Log density of the Langevin proposal, up to a constant: variance h S**2 about q + h S**2 gradient / 2."""
    variance = (STEP * SCALE) ** 2
    return -0.5 * ((to - at - 0.5 * variance * gradient(at)) ** 2 / variance).sum(axis=1)


def test_the_step_is_the_langevin_proposal_with_its_metropolis_ratio() -> None:
    """Formulas of Roberts and Tweedie 1996, as in BlackJAX's `mala` with step size e**2 / 2, in another metric."""
    keys = jax.random.split(jax.random.key(1), NUM_CHAINS)
    start = Position(jnp.full((NUM_CHAINS, 2), 0.7), None)
    tuning = HamiltonianTuning(jnp.asarray(STEP), Position(jnp.asarray(SCALE), None), ())

    @jax.jit
    def go(position: Position) -> Any:
        state = KERNEL.init(keys, position, TARGET)
        return state, *KERNEL.step(keys, state, TARGET, tuning)

    state, after, info = go(start)
    at, to = np.asarray(start.shared), np.asarray(info.trajectory.proposal.position.shared)
    noise = (to - at) / (STEP * SCALE) - 0.5 * STEP * SCALE * gradient(at)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(2), atol=5 * np.sqrt(2 / NUM_CHAINS))
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=5 / np.sqrt(NUM_CHAINS))

    proposal = info.trajectory.proposal
    change = proposal.log_prior + proposal.log_likelihood - state.log_prior - state.log_likelihood
    log_ratio = np.asarray(change) + log_proposal(at, to) - log_proposal(to, at)
    np.testing.assert_allclose(info.acceptance_rate, np.exp(np.minimum(log_ratio, 0)), rtol=1e-9, atol=1e-300)
    assert 0.2 < info.acceptance_rate.mean() < 0.9, "this test wants rejections"
    np.testing.assert_array_equal((np.asarray(after.position.shared) != at).any(axis=1), info.accepted)
    assert info.n_steps == KERNEL.expected_gradients() == 1
