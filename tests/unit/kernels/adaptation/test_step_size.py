"""Dual averaging finds the step size whose acceptance is the target."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.step_size import averaged_step_size, init_step_size, update_step_size


@pytest.mark.parametrize("first", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("target", [0.6, 0.9])
def test_a_known_acceptance_curve_is_solved(first: float, target: float) -> None:
    """Acceptance is exp(-step) plus noise."""
    noise = 0.1 * jax.random.normal(jax.random.key(0), (600,))

    def step(state, error):
        acceptance = jnp.clip(jnp.exp(-jnp.exp(state.log_step)) + error, 0, 1)
        return update_step_size(state, acceptance, target), None

    state, _ = jax.lax.scan(step, init_step_size(first), noise)
    np.testing.assert_allclose(jnp.exp(-averaged_step_size(state)), target, atol=0.03)


def test_the_first_step_sizes_are_those_of_the_paper() -> None:
    """Hoffman and Gelman 2014, algorithm 5, by hand."""
    state, mu, total, average = init_step_size(0.5), np.log(10 * 0.5), 0.0, np.log(0.5)
    for count, acceptance in enumerate((0.1, 0.9, 0.95), start=1):
        state = update_step_size(state, jnp.asarray(acceptance), 0.8)
        total += 0.8 - acceptance
        log_step = mu - np.sqrt(count) / 0.05 * total / (count + 10)
        average = count**-0.75 * log_step + (1 - count**-0.75) * average
        np.testing.assert_allclose(state.log_step, log_step, rtol=1e-13)
        np.testing.assert_allclose(averaged_step_size(state), np.exp(average), rtol=1e-13)


def test_without_updates_the_step_size_stays() -> None:
    np.testing.assert_allclose(averaged_step_size(init_step_size(0.25)), 0.25, rtol=1e-15)
