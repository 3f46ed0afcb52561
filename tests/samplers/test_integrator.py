"""Leapfrog and split steps under every metric: second order, reversible, and preserving volume.

On a quartic target, whose force is not linear, with a shared and a local part. What a metric learnt is part of the map,
so that a matrix which is not its own transpose, or a scale applied twice, breaks the volume or the energy.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.blocks import METRICS
from bayesmesh.kernels.base import DensityParts, Position, Target
from bayesmesh.kernels.hamiltonian.metrics import load_metric
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState, Normal, batch_dot, init_state, move, turn
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, DIMENSION = 5, 3


class Quartic(Target):
    """Minus the sum of squares and of a quarter of the fourth powers, in correlated coordinates."""

    mask = Position(None, None)

    def log_density_parts(self, position: Position) -> DensityParts:
        def of_chain(q: Position) -> jax.Array:
            x = jnp.concatenate([jnp.ravel(part) for part in jax.tree.leaves(q)])
            x = x + 0.5 * jnp.roll(x, 1)
            return -jnp.sum(0.5 * x**2 + 0.25 * x**4)

        value, gradient = jax.vmap(jax.value_and_grad(of_chain))(position)
        nothing = jax.tree.map(jnp.zeros_like, gradient)
        return DensityParts(jnp.zeros_like(value), value, nothing, gradient)


class Setting:
    """A metric learnt from 30 points, and trajectories from one point of every chain; split about a centre if that is given."""

    def __init__(self, name: str, centre: float | None) -> None:
        self.metric, self.target = load_metric(name), Quartic()
        self.normal = None if centre is None else Normal(Position(jnp.full(DIMENSION, centre), None), jnp.asarray(True))
        self.begin = init_state(self.points(0), self.target)
        self.data = self._learn()
        self.momentum = self.metric.draw_momentum(
            jax.random.split(jax.random.key(3), NUM_CHAINS), self.begin.position, self.target.mask
        )

    @staticmethod
    def points(seed: int) -> Position:
        generator = np.random.default_rng(seed)
        scale = np.array([0.3, 1.0, 2.0])
        return Position(jnp.asarray(scale * generator.standard_normal((NUM_CHAINS, DIMENSION))), None)

    def _learn(self) -> Any:
        if not self.metric.is_adaptive:
            return self.metric.init(self.begin.gradient, self.target.mask)
        estimate = self.metric.init_estimate(self.begin.position)
        for seed in range(6):
            state = init_state(self.points(seed), self.target)
            estimate = self.metric.update_estimate(estimate, state.position, state.gradient)
        return self.metric.estimate(estimate)

    @functools.partial(jax.jit, static_argnums=0)
    def go(
        self, state: HamiltonianState, momentum: Position, step_size: jax.Array, num_steps: jax.Array
    ) -> tuple[HamiltonianState, Position]:
        if self.normal is None:
            return move(self.metric, self.data, self.target, step_size, num_steps, state, momentum)
        force = self.metric.whiten_gradient(self.data, state.gradient)
        return jax.lax.fori_loop(
            0,
            num_steps,
            lambda _, at: turn(self.metric, self.data, self.normal, self.target, step_size, *at),
            (state, momentum, force),
        )[:2]

    def energy(self, state: HamiltonianState, momentum: Position) -> np.ndarray:
        return np.asarray(0.5 * batch_dot(momentum, momentum) - state.log_prior - state.log_likelihood)


@pytest.fixture(scope="module", params=itertools.product(METRICS, (None, 0.4)), ids=str)
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(*request.param)


def test_the_energy_error_is_of_second_order(setting: Setting, record) -> None:
    """Half the step is a quarter of the error, at the same end of the trajectory."""
    before = setting.energy(setting.begin, setting.momentum)
    errors = [
        np.abs(setting.energy(*setting.go(setting.begin, setting.momentum, 0.02 / n, 20 * n)) - before).max()
        for n in (1, 2, 4)
    ]
    ratios = np.array(errors[:-1]) / errors[1:]
    record(f"errors fall {ratios[0]:.2f} and {ratios[1]:.2f} times", "3.2 to 4.8")
    assert errors[0] > 1e-8, "an error that is only rounding has no order"
    assert ((ratios > 3.2) & (ratios < 4.8)).all()


def test_a_trajectory_runs_back_to_its_start(setting: Setting, record) -> None:
    end, momentum = setting.go(setting.begin, setting.momentum, 0.1, 25)
    assert np.abs(np.asarray(end.position.shared - setting.begin.position.shared)).max() > 0.1
    back, _ = setting.go(end, jax.tree.map(jnp.negative, momentum), 0.1, 25)
    distance = float(np.abs(np.asarray(back.position.shared - setting.begin.position.shared)).max())
    record(f"distance {distance:.1e}", "1e-10")
    assert distance < 1e-10


def test_volume_is_preserved(setting: Setting, record) -> None:
    """The Jacobian of positions and momenta of one chain, with the others where they are."""

    def end_of(x: jax.Array) -> jax.Array:
        def put(part: Position, values: jax.Array) -> Position:
            return part._replace(shared=part.shared.at[0].set(values))

        state = init_state(put(setting.begin.position, x[:DIMENSION]), setting.target)
        momentum = put(setting.momentum, x[DIMENSION:])
        end, last = setting.go(state, momentum, 0.2, 4)
        return jnp.concatenate([end.position.shared[0], last.shared[0]])

    start = jnp.concatenate([setting.begin.position.shared[0], setting.momentum.shared[0]])
    jacobian = np.asarray(jax.jit(jax.jacfwd(end_of))(start))
    assert np.abs(jacobian - np.eye(2 * DIMENSION)).max() > 0.1
    error = abs(abs(np.linalg.det(jacobian)) - 1)
    record(f"| |det| - 1 | = {error:.1e}", "1e-8")
    assert error < 1e-8


@pytest.mark.parametrize("name", METRICS)
def test_a_split_step_is_a_leapfrog_step_until_the_normal_is_known(name: str) -> None:
    plain, split = Setting(name, None), Setting(name, 0.4)
    split.normal = Normal(Position(jnp.zeros(DIMENSION), None), jnp.asarray(False))
    for x, y in zip(
        jax.tree.leaves(plain.go(plain.begin, plain.momentum, 0.1, 7)),
        jax.tree.leaves(split.go(split.begin, split.momentum, 0.1, 7)),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_a_split_step_of_any_length_is_exact_in_its_normal() -> None:
    centre, data, metric = (
        Position(jnp.asarray([3.0, -50.0]), None),
        Position(jnp.asarray([0.1, 20.0]), None),
        load_metric("diagonal"),
    )
    target = FunctionTarget(lambda q: -0.5 * jnp.sum(((q - centre.shared) / data.shared) ** 2))
    state = init_state(Position(jnp.asarray([[3.2, -90.0]]), None), target)
    momentum, time = Position(jnp.asarray([[0.7, -1.1]]), None), 2.0
    end, last, _ = turn(
        metric,
        data,
        Normal(centre, jnp.asarray(True)),
        target,
        jnp.asarray(time),
        state,
        momentum,
        metric.whiten_gradient(data, state.gradient),
    )
    white = np.array([2.0, -2.0])
    np.testing.assert_allclose(
        (end.position.shared[0] - centre.shared) / data.shared,
        np.cos(time) * white + np.sin(time) * momentum.shared[0],
        rtol=1e-12,
    )
    np.testing.assert_allclose(last.shared[0], np.cos(time) * momentum.shared[0] - np.sin(time) * white, rtol=1e-12)
