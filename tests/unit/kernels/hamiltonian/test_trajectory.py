"""The leapfrog integrator: one step by hand, reversibility, order, volume; the bookkeeping of a trajectory."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Density, Position, Target, map_parts
from bayesmesh.kernels.hamiltonian.laplace import NormalAtMode, fit_normal
from bayesmesh.kernels.hamiltonian.metrics.curvature import CurvatureMetric
from bayesmesh.kernels.hamiltonian.metrics.diagonal import DiagonalMetric
from bayesmesh.kernels.hamiltonian.metrics.identity import IdentityMetric
from bayesmesh.kernels.hamiltonian.trajectory import (
    RESTARTED,
    STATISTICS,
    HamiltonianInfo,
    batch_dot,
    init_state,
    leapfrog,
    move,
    place_in_normal,
    rotate,
    run_split_trajectory,
    run_trajectory,
)
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget
from bayesmesh.kernels.tempered_smc import TemperedSmc

NUM_CHAINS = 5
METRIC = DiagonalMetric()


class Quartic(Target):
    """A coupled, non-quadratic potential of a (2,), which is shared, and b (1, 1), which is local.

    Args:
        scale: coordinates are in these units.
        offset: added to prior and taken from likelihood, in nats.
    """

    mask = Position(None, None)

    def __init__(self, scale: Position | None = None, offset: float = 0.0) -> None:
        self.scale, self.offset = scale, offset

    def log_density(self, position: Position) -> Density:
        def of_chain(q: Position) -> jax.Array:
            q = q if self.scale is None else jax.tree.map(jnp.multiply, q, self.scale)
            a, b = q.shared, q.local[0, 0]
            return -(0.5 * a[0] ** 2 + 0.1 * a[1] ** 4 + 0.5 * a[1] ** 2 + 0.5 * (b - 0.3 * a[0] * a[1]) ** 2)

        value, gradient = jax.vmap(jax.value_and_grad(of_chain))(position)
        value = value.astype(jnp.float64)
        return Density(0.3 * value + 0.3 * self.offset, 0.7 * value - self.offset, gradient)


def draw(seed: int, dtype: str = "float64", num_chains: int = NUM_CHAINS) -> Position:
    one, two = jax.random.split(jax.random.key(seed))
    return Position(jax.random.normal(one, (num_chains, 2), dtype), jax.random.normal(two, (num_chains, 1, 1), dtype))


def scale(dtype: str = "float64") -> Position:
    return Position(jnp.asarray([0.7, 1.3], dtype), jnp.asarray([[0.9]], dtype))


@jax.jit
def go(position: Position, momentum: Position, step_size: float, num_steps: int):
    """End point and its momentum."""
    data, target = scale(position.shared.dtype), Quartic()
    return move(
        METRIC, data, target, jnp.asarray(step_size), jnp.asarray(num_steps), init_state(position, target), momentum
    )


def energy(state, momentum: Position) -> jax.Array:
    return 0.5 * batch_dot(momentum, momentum) - state.log_prior - state.log_likelihood


def test_one_step_is_the_one_worked_out_by_hand() -> None:
    """Standard normal, scale 2, step 0.1, from q = 1, p = 0.5: p - 0.1, q + 0.2 p, p - 0.1 q."""
    target = FunctionTarget(lambda q: -0.5 * q[0] ** 2)
    end, momentum = move(
        METRIC,
        Position(jnp.asarray([2.0]), None),
        target,
        jnp.asarray(0.1),
        jnp.asarray(1),
        init_state(Position(jnp.asarray([[1.0]]), None), target),
        Position(jnp.asarray([[0.5]]), None),
    )
    np.testing.assert_allclose(end.position.shared[0, 0], 1 + 0.2 * 0.4, rtol=1e-15)
    np.testing.assert_allclose(momentum.shared[0, 0], 0.4 - 0.1 * 1.08, rtol=1e-15)
    np.testing.assert_allclose(end.log_likelihood[0], -0.5 * 1.08**2, rtol=1e-15)


def step_once(target: Quartic, step_size: jax.Array, position: Position, momentum: Position):
    """State, momentum and force after one leapfrog step."""
    state = init_state(position, target)
    force = METRIC.whiten_gradient(scale(), state.gradient)
    return leapfrog(METRIC, scale(), target, step_size, state, momentum, force)


def test_a_trajectory_is_its_steps_one_after_another() -> None:
    position, momentum, target = draw(1), draw(2), Quartic()
    end, last = go(position, momentum, 0.1, 5)
    at, force = init_state(position, target), METRIC.whiten_gradient(scale(), init_state(position, target).gradient)
    for _ in range(5):
        at, momentum, force = leapfrog(METRIC, scale(), target, jnp.asarray(0.1), at, momentum, force)
    for x, y in ((end.position, at.position), (end.gradient, at.gradient), (last, momentum)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), x, y)
    np.testing.assert_allclose(end.log_likelihood, at.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(force.shared, METRIC.whiten_gradient(scale(), at.gradient).shared, rtol=1e-12)


def test_chains_may_have_step_sizes_of_their_own() -> None:
    """A step of one chain is what it is alone with its step size; negative ones go backwards in time."""
    position, momentum, target = draw(1), draw(2), Quartic()
    steps = jnp.asarray([0.1, -0.1, 0.3, 0.0, 0.2])
    together = step_once(target, steps, position, momentum)
    for i, step in enumerate(steps):
        alone = jax.tree.map(lambda x, i=i: x[i : i + 1], (position, momentum))
        one = step_once(target, step, *alone)
        for x, y in ((together[0].position, one[0].position), (together[1], one[1]), (together[2], one[2])):
            jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y[0], rtol=1e-12), x, y)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
def test_a_trajectory_runs_back_to_its_start(dtype: str, tolerance: float) -> None:
    position = draw(1, dtype)
    end, momentum = go(position, draw(2, dtype), 0.1, 40)
    back, _ = go(end.position, jax.tree.map(jnp.negative, momentum), 0.1, 40)
    assert jnp.abs(end.position.shared - position.shared).max() > 0.5
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance), back.position, position)


def test_the_energy_error_is_of_second_order() -> None:
    position, momentum = draw(3), draw(4)
    begin = energy(init_state(position, Quartic()), momentum)
    errors = [np.abs(energy(*go(position, momentum, e, n)) - begin) for e, n in ((0.1, 10), (0.05, 20), (0.025, 40))]
    for coarse, fine in itertools.pairwise(errors):
        np.testing.assert_allclose(coarse.sum() / fine.sum(), 4.0, rtol=0.2)


def test_volume_is_preserved() -> None:
    def flow(flat: jax.Array) -> jax.Array:
        position, momentum = (Position(x[None, :2], x[None, 2:, None]) for x in (flat[:3], flat[3:]))
        end, p = go(position, momentum, 0.2, 7)
        return jnp.concatenate([x.ravel() for x in (*end.position, *p)])

    jacobian = jax.jacfwd(flow)(jax.random.normal(jax.random.key(5), (6,)))
    np.testing.assert_allclose(jnp.linalg.det(jacobian), 1.0, atol=1e-8)
    assert jnp.abs(jacobian - jnp.eye(6)).max() > 0.3


def test_a_scale_is_a_change_of_units() -> None:
    """Steps of scale s on the target are steps of scale 1 on the target in units of s."""

    position, momentum, in_units = draw(6), draw(7), Quartic(scale())
    end, p = go(position, momentum, 0.1, 9)
    state = init_state(jax.tree.map(jnp.divide, position, scale()), in_units)
    other, other_p = move(IdentityMetric(), (), in_units, jnp.asarray(0.1), jnp.asarray(9), state, momentum)
    for part, end_part, unit in zip(other.position, end.position, scale(), strict=True):
        np.testing.assert_allclose(part * unit, end_part, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), other_p, p)


def run(keys: jax.Array, position: Position, step_size: float, num_steps: int, target: Quartic | None = None):
    target, data = target or Quartic(), scale(position.shared.dtype)
    return jax.jit(
        lambda q: run_trajectory(
            keys, init_state(q, target), target, METRIC, data, jnp.asarray(step_size), jnp.asarray(num_steps)
        )
    )(position)


def test_acceptance_is_the_metropolis_rule() -> None:
    """Of many chains at one point, as many are accepted as the mean of the acceptance rates says."""
    num_chains = 20_000
    position = jax.tree.map(lambda x: jnp.repeat(x[:1], num_chains, axis=0), draw(8))
    state, info = run(jax.random.split(jax.random.key(9), num_chains), position, 1.0, 3)
    rate = np.asarray(info.acceptance_rate)
    assert 0.2 < rate.mean() < 0.9, "this test wants rejections"
    z = (np.asarray(info.accepted) - rate).sum() / np.sqrt((rate * (1 - rate)).sum())
    assert abs(z) < 4.5
    assert state.num_steps == 1, "rejected or not, an iteration counts"
    sure = rate >= 1
    assert info.accepted[sure].all()
    moved = np.asarray((state.position.shared != position.shared).any(axis=1))
    np.testing.assert_array_equal(moved, info.accepted)
    kept = np.where(info.accepted[:, None, None], info.trajectory.proposal.position.local, position.local)
    np.testing.assert_array_equal(state.position.local, kept)


def test_momenta_are_standard_normal_and_independent() -> None:
    """At the start of a trajectory the energy above the potential is half a chi-squared with a degree a coordinate."""
    num_chains = 20_000
    position = jax.tree.map(lambda x: jnp.repeat(x[:1], num_chains, axis=0), draw(8))
    _, info = run(jax.random.split(jax.random.key(10), num_chains), position, 1e-9, 1)
    p = np.column_stack([x.reshape(num_chains, -1) for x in info.trajectory.momentum])
    assert np.abs(p.mean(axis=0)).max() < 5 / np.sqrt(num_chains)
    np.testing.assert_allclose(np.cov(p.T), np.eye(3), atol=5 * np.sqrt(2 / num_chains))
    np.testing.assert_allclose((info.energy + info.lp).mean(), 1.5, atol=5 * np.sqrt(1.5 / num_chains))


def test_small_changes_of_a_huge_density_decide() -> None:
    """At a log density of -1e7 a float32 has a resolution of 1 nat: acceptance must not see it."""
    keys = jax.random.split(jax.random.key(11), NUM_CHAINS)
    found = [run(keys, draw(1, "float32"), 0.5, 4, target)[1] for target in (Quartic(), Quartic(offset=1e7))]
    np.testing.assert_allclose(found[0].acceptance_rate, found[1].acceptance_rate, atol=1e-8)


@pytest.mark.parametrize("step_size", [0.2, 1e3])
def test_a_trajectory_that_leaves_the_world_diverges(step_size: float) -> None:
    _, info = run(jax.random.split(jax.random.key(12), NUM_CHAINS), draw(13), step_size, 3)
    assert (info.diverging == (step_size > 1)).all()
    assert (info.n_steps, info.step_size) == (3, step_size)


def test_what_is_recorded_is_a_field_of_the_info() -> None:
    assert set(HamiltonianInfo._fields) == {*STATISTICS, *RESTARTED, *TemperedSmc.statistics, "trajectory", "ancestor"}


METRIC_SPLIT, SIZE = CurvatureMetric(), 3
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


def run_split(target: Target, of: NormalAtMode, q: Any, key: int, step_size: float, num_steps: int) -> Any:
    keys = jax.random.split(jax.random.key(key), len(q))
    state = place_in_normal(init_state(Position(q, None), target), METRIC_SPLIT, of.curvature, centre(of))
    numbers = jnp.asarray(step_size), jnp.asarray(num_steps, jnp.int32)
    return keys, *run_split_trajectory(keys, state, target, METRIC_SPLIT, of.curvature, centre(of), *numbers)


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-9), ("float32", 1e-3)])
def test_a_quarter_of_a_period_ends_in_an_independent_draw_of_the_normal(dtype: str, atol: float) -> None:
    """However long the steps are."""
    target, of = fitted(normal, dtype)
    q = jnp.asarray(np.random.default_rng(1).standard_normal((5, SIZE)), dtype)
    keys, state, info = jax.jit(lambda q: run_split(target, of, q, 2, np.pi / 4, 2))(q)
    assert info.accepted.all()
    np.testing.assert_allclose(info.acceptance_rate, 1, atol=atol)
    drawn = METRIC_SPLIT.draw_momentum(keys, Position(q, None), target.mask)
    np.testing.assert_allclose(
        state.position.shared, MODE + METRIC_SPLIT.move(of.curvature, drawn).shared, atol=10 * atol, rtol=atol
    )
    assert {x.dtype.name for x in jax.tree.leaves((state.position, state.split))} == {dtype}


def test_it_follows_the_same_flow_as_leapfrog() -> None:
    """Of a target that is not normal, with an error that is four times smaller at half the step."""
    target, of = fitted(quartic)
    noise = Position(jnp.asarray(np.random.default_rng(3).standard_normal((4, SIZE))), None)
    q = map_parts(lambda x: MODE + x, METRIC_SPLIT.move(of.curvature, noise))
    momentum = METRIC_SPLIT.draw_momentum(jax.random.split(jax.random.key(1), 4), q, target.mask)
    exact, _ = jax.jit(
        lambda: move(
            METRIC_SPLIT, of.curvature, target, jnp.asarray(1e-4), jnp.asarray(5000), init_state(q, target), momentum
        )
    )()

    def end(num_steps: int) -> np.ndarray:
        """Where the trajectory with this momentum ends, without the Metropolis step."""
        keys = jax.random.split(jax.random.key(1), 4)
        state = place_in_normal(init_state(q, target), METRIC_SPLIT, of.curvature, centre(of))

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
    _, state, info = jax.jit(lambda q: run_split(target, of, q, 6, 0.8, 2))(q)
    share = float(jnp.mean(info.accepted))
    assert 0.3 < share < 0.97, "neither step is trivial"
    after = np.asarray(state.position.shared)
    assert np.abs(np.corrcoef(np.ravel(after), np.ravel(q))[0, 1]) < 0.9
    assert min(stats.kstest(column, stats.logistic.cdf).pvalue for column in after.T) > 1e-3
    # Where a proposal is refused, so are its coordinates in the normal.
    position = METRIC_SPLIT.move(of.curvature, state.split.white).shared + centre(of).shared
    np.testing.assert_allclose(position, after, atol=1e-9)
    force = METRIC_SPLIT.whiten_gradient(of.curvature, state.gradient).shared + state.split.white.shared
    np.testing.assert_allclose(state.split.force.shared, force, atol=1e-9)


def test_without_a_normal_it_is_refused_in_words() -> None:
    kernel = Hmc(Options(integrator="split", metric="curvature"), 0)
    with pytest.raises(ConfigError, match="split needs the mode") as refused:
        kernel.init(jax.random.split(jax.random.key(0), 2), Position(jnp.ones((2, SIZE)), None), FunctionTarget(normal))
    assert "method: laplace" in refused.value.remedy
    with pytest.raises(ConfigError, match="metric is diagonal"):
        Hmc(Options(integrator="split", metric="diagonal"), 0)
