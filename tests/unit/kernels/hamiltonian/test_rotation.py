"""Trajectories that are exact in a normal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position, Target, map_parts
from bayesmesh.kernels.hamiltonian.laplace import NormalAtMode, fit_normal
from bayesmesh.kernels.hamiltonian.metrics.curvature import CurvatureMetric
from bayesmesh.kernels.hamiltonian.rotation import place_in_normal, rotate, run_split_trajectory
from bayesmesh.kernels.hamiltonian.trajectory import init_state, move
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget

METRIC, SIZE = CurvatureMetric(), 3
ROOT = np.random.default_rng(0).standard_normal((SIZE, SIZE)) * np.geomspace(0.1, 10, SIZE)
MODE = jnp.arange(1.0, SIZE + 1)


def normal(q: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((jnp.asarray(ROOT, q.dtype) @ (q - MODE.astype(q.dtype))) ** 2)


def quartic(q: jax.Array) -> jax.Array:
    """Not normal anywhere."""
    return normal(q) - 0.05 * jnp.sum((jnp.asarray(ROOT) @ (q - MODE)) ** 4)


def fitted(function: Any, dtype: str = "float64") -> tuple[FunctionTarget, NormalAtMode]:
    target = FunctionTarget(function)
    return target, fit_normal(target, Position(jnp.ones((1, SIZE), dtype), None), [])


def centre(of: NormalAtMode) -> Position:
    return map_parts(lambda x: x[0], of.mean)


def run(target: Target, of: NormalAtMode, q: Any, key: int, step_size: float, num_steps: int) -> Any:
    keys = jax.random.split(jax.random.key(key), len(q))
    state = place_in_normal(init_state(Position(q, None), target), METRIC, of.curvature, centre(of))
    numbers = jnp.asarray(step_size), jnp.asarray(num_steps, jnp.int32)
    return keys, *run_split_trajectory(keys, state, target, METRIC, of.curvature, centre(of), *numbers)


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-9), ("float32", 1e-3)])
def test_a_quarter_of_a_period_ends_in_an_independent_draw_of_the_normal(dtype: str, atol: float) -> None:
    """However long the steps are."""
    target, of = fitted(normal, dtype)
    q = jnp.asarray(np.random.default_rng(1).standard_normal((5, SIZE)), dtype)
    keys, state, info = jax.jit(lambda q: run(target, of, q, 2, np.pi / 4, 2))(q)
    assert info.accepted.all()
    np.testing.assert_allclose(info.acceptance_rate, 1, atol=atol)
    drawn = METRIC.draw_momentum(keys, Position(q, None), target.mask)
    np.testing.assert_allclose(
        state.position.shared, MODE + METRIC.move(of.curvature, drawn).shared, atol=10 * atol, rtol=atol
    )
    assert {x.dtype.name for x in jax.tree.leaves((state.position, state.split))} == {dtype}


def test_it_follows_the_same_flow_as_leapfrog() -> None:
    """Of a target that is not normal, with an error that is four times smaller at half the step."""
    target, of = fitted(quartic)
    noise = Position(jnp.asarray(np.random.default_rng(3).standard_normal((4, SIZE))), None)
    q = map_parts(lambda x: MODE + x, METRIC.move(of.curvature, noise))
    momentum = METRIC.draw_momentum(jax.random.split(jax.random.key(1), 4), q, target.mask)
    exact, _ = jax.jit(
        lambda: move(
            METRIC, of.curvature, target, jnp.asarray(1e-4), jnp.asarray(5000), init_state(q, target), momentum
        )
    )()

    def end(num_steps: int) -> np.ndarray:
        """Where the trajectory with this momentum ends, without the Metropolis step."""
        keys = jax.random.split(jax.random.key(1), 4)
        state = place_in_normal(init_state(q, target), METRIC, of.curvature, centre(of))

        class Given(CurvatureMetric):
            def draw_momentum(self, *_: Any) -> Position:
                return momentum

        numbers = jnp.asarray(0.5 / num_steps), jnp.asarray(num_steps, jnp.int32)
        _, info = run_split_trajectory(keys, state, target, Given(), of.curvature, centre(of), *numbers)
        return np.asarray(info.trajectory.proposal.position.shared)

    errors = [np.abs(end(n) - np.asarray(exact.position.shared)).max() for n in (20, 40)]
    assert errors[1] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1), errors


def test_a_rotation_keeps_the_radius_and_turns_back() -> None:
    z, p = (Position(jnp.asarray([[1.0, 2.0]]), None), Position(jnp.asarray([[0.5, -1.0]]), None))
    turned = rotate(z, p, jnp.asarray(0.7))
    np.testing.assert_allclose(sum((x.shared**2).sum() for x in turned), 6.25)
    back = rotate(*turned, jnp.asarray(-0.7))
    np.testing.assert_allclose(back[0].shared, z.shared)
    np.testing.assert_allclose(back[1].shared, p.shared)


def test_a_transition_leaves_another_distribution_as_it_is() -> None:
    """Independent logistic coordinates, started as exact draws, with the normal of another mean and scale."""
    target = FunctionTarget(lambda q: jnp.sum(jax.nn.log_sigmoid(q) + jax.nn.log_sigmoid(-q)))
    _, of = fitted(lambda q: -0.5 * jnp.sum(((q - 0.5) / 1.3) ** 2))
    q = jax.random.logistic(jax.random.key(5), (20_000, SIZE))
    _, state, info = jax.jit(lambda q: run(target, of, q, 6, 0.8, 2))(q)
    share = float(jnp.mean(info.accepted))
    assert 0.3 < share < 0.97, "neither step is trivial"
    after = np.asarray(state.position.shared)
    assert np.abs(np.corrcoef(np.ravel(after), np.ravel(q))[0, 1]) < 0.9
    assert min(stats.kstest(column, stats.logistic.cdf).pvalue for column in after.T) > 1e-3
    # Where a proposal is refused, so are its coordinates in the normal.
    position = METRIC.move(of.curvature, state.split.white).shared + centre(of).shared
    np.testing.assert_allclose(position, after, atol=1e-9)
    force = METRIC.whiten_gradient(of.curvature, state.gradient).shared + state.split.white.shared
    np.testing.assert_allclose(state.split.force.shared, force, atol=1e-9)


def test_without_a_normal_it_is_refused_in_words() -> None:
    kernel = Hmc(Options(integrator="split", metric="curvature"), 0)
    with pytest.raises(ConfigError, match="split needs a mode") as refused:
        kernel.init(jax.random.split(jax.random.key(0), 2), Position(jnp.ones((2, SIZE)), None), FunctionTarget(normal))
    assert "method: laplace" in refused.value.remedy
    with pytest.raises(ConfigError, match="metric is diagonal"):
        Hmc(Options(integrator="split", metric="diagonal"), 0)
