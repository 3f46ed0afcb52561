"""What is particular to the adjusted microcanonical sampler: motion on a sphere, its volume, and its refusal."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.trajectory import batch_dot
from bayesmesh.kernels.mams import Mams, Options, num_coordinates, to_sphere, turn
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS = 6
SCALE = Position(jnp.asarray([0.7, 1.3, 2.0]), jnp.asarray([[0.9], [1.1]]))
SIZE = jnp.asarray(5.0)


def draw(seed: int) -> Position:
    one, two = jax.random.split(jax.random.key(seed))
    return Position(jax.random.normal(one, (NUM_CHAINS, 3)), jax.random.normal(two, (NUM_CHAINS, 2, 1)))


def flat(position: Position) -> jax.Array:
    return jnp.concatenate([position.shared, position.local.reshape(NUM_CHAINS, -1)], axis=1)


def test_a_turn_solves_the_equation_of_motion() -> None:
    """The momentum's derivative is the tangential force times d / (d - 1), that of log volume minus the stretch of it."""
    momentum, force = to_sphere(draw(1), SIZE), draw(2)

    def later(time: jax.Array) -> Any:
        return turn(momentum, force, time, SIZE)

    now = jnp.asarray(0.3)
    at, _ = later(now)
    rate, log_rate = jax.jvp(later, (now,), (jnp.asarray(1.0),))[1]
    p, f = flat(at), flat(force)
    along = (p * f).sum(axis=1)
    np.testing.assert_allclose(flat(rate), (f - p * along[:, None] / 5) * 5 / 4, rtol=1e-8, atol=1e-10)
    # The divergence of that field on a sphere of radius r and dimension d - 1 is -(d - 1) (force . p / r**2) d / (d - 1).
    np.testing.assert_allclose(log_rate, -along, rtol=1e-8)
    np.testing.assert_allclose(batch_dot(at, at), 5.0, rtol=1e-12)
    np.testing.assert_allclose(later(jnp.asarray(0.0))[1], 0.0, atol=1e-12)


def test_the_volume_is_that_of_blackjax() -> None:
    """Its `esh_dynamics_momentum_update_one_step` gives the change of kinetic energy, for unit momenta."""
    momentum, force, step = to_sphere(draw(1), SIZE), draw(2), 0.7
    u, g = np.asarray(flat(momentum)) / np.sqrt(5), np.asarray(flat(force))
    norm = np.linalg.norm(g, axis=1)
    e = g / norm[:, None]
    delta, cosine = step * norm / 4, (u * e).sum(axis=1)
    stretch = np.cosh(delta) + cosine * np.sinh(delta)
    expected = (u + e * (np.sinh(delta) + cosine * (np.cosh(delta) - 1))[:, None]) / stretch[:, None]
    moved, log_volume = turn(momentum, force, jnp.asarray(step / np.sqrt(5)), SIZE)
    np.testing.assert_allclose(flat(moved), np.sqrt(5) * expected, rtol=1e-12)
    np.testing.assert_allclose(log_volume, -4 * np.log(stretch), rtol=1e-12)


def test_strong_and_absent_forces_give_finite_turns() -> None:
    momentum = to_sphere(draw(1), SIZE)
    force = jax.tree.map(
        lambda x: x * jnp.asarray([0.0, 1e-200, 1e-20, 1e3, 1e20, 1e100]).reshape(-1, *[1] * (x.ndim - 1)), draw(2)
    )
    moved, log_volume = turn(momentum, force, jnp.asarray(1.0), SIZE)
    np.testing.assert_allclose(batch_dot(moved, moved), 5.0, rtol=1e-12)
    assert np.isfinite(log_volume).all()
    np.testing.assert_allclose(flat(moved)[:3], flat(momentum)[:3], rtol=1e-12)
    towards = batch_dot(moved, force)[3:] / np.sqrt(5 * batch_dot(force, force)[3:])
    np.testing.assert_allclose(towards, 1.0, rtol=1e-12)


# -- whole trajectories ----------------------------------------------------------------------------------------------

TARGET = FunctionTarget(lambda q: -0.25 * jnp.sum(q**4) - 0.5 * jnp.sum((q[1:] - 0.3 * q[:-1]) ** 2))
KERNEL = Mams(Options(metric="diagonal"), 0)


def keys(num_chains: int) -> jax.Array:
    return jax.random.split(jax.random.key(3), num_chains)


@jax.jit
def go(position: jax.Array, step_size: jax.Array, length: jax.Array) -> Any:
    """State and info of one transition from positions (chain, 4)."""
    tuning = HamiltonianTuning(step_size, Position(jnp.asarray([0.8, 1.2, 1.0, 0.5]), None), length)
    state = KERNEL.init(keys(len(position)), Position(position, None), TARGET)
    return KERNEL.step(keys(len(position)), state, TARGET, tuning)


def test_the_error_of_the_log_ratio_is_of_second_order() -> None:
    """At the first iteration a trajectory has half of the longest length."""
    position = jax.random.normal(jax.random.key(5), (50, 4))
    errors = []
    for step_size in (0.1, 0.05, 0.025):
        _, info = go(position, jnp.asarray(step_size), jnp.asarray(2.0))
        assert info.n_steps == round(1 / step_size)
        rate = np.asarray(info.acceptance_rate)
        errors.append(-np.log(rate[rate < 1]).sum())
    for coarse, fine in itertools.pairwise(errors):
        np.testing.assert_allclose(coarse / fine, 4.0, rtol=0.25)


def test_padding_is_not_counted() -> None:
    mask = Position(None, jnp.asarray([[1.0], [0.0]]))
    assert num_coordinates(draw(1), mask) == 4
    assert num_coordinates(draw(1), Position(None, None)) == 5


def test_a_model_of_one_coordinate_is_refused() -> None:
    target = FunctionTarget(lambda q: -0.5 * jnp.sum(q**2))
    with pytest.raises(ConfigError, match="'mams' needs at least 2 coordinates") as caught:
        KERNEL.init(keys(2), Position(jnp.zeros((2, 1)), None), target)
    assert "nuts" in caught.value.remedy


def test_no_energy_is_recorded() -> None:
    assert "energy" not in Mams.statistics
    assert "diverging" in Mams.statistics
