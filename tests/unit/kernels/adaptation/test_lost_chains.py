"""Chains in a mode of negligible mass restart from others, and chains in any other mode stay, however low its density."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.lost_chains import (
    Seen,
    bound_log_masses,
    choose_sources,
    init_seen,
    is_moving,
    is_steady,
    near_others,
    update_running,
    update_seen,
)
from bayesmesh.kernels.adaptation.warmup import early_end, is_restart, window_ends
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.chees import Chees, Options
from bayesmesh.kernels.chees import Options as CheesOptions
from bayesmesh.kernels.nuts import Nuts
from bayesmesh.kernels.nuts import Options as NutsOptions
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, SIZE, NUM_WARMUP, LAST = 8, 4, 200, 110
FAR = 400.0
NO_MASK = Position(None, None)


def watch(draws: np.ndarray, precision: np.ndarray, log_mass: np.ndarray) -> Seen:
    """Return what chains have seen after draws (draw, chain, coordinate) of normals around 0 with one precision each."""
    seen = init_seen(Position(jnp.asarray(draws[0]), None))
    for x in draws:
        gradient = -np.einsum("cij,cj->ci", precision, x)
        lp = log_mass + 0.5 * np.linalg.slogdet(precision)[1] + 0.5 * np.sum(x * gradient, axis=1)
        seen = update_seen(seen, jnp.asarray(lp), Position(jnp.asarray(x), None), Position(jnp.asarray(gradient), None))
    return seen


def normal_draws(covariance: np.ndarray, num_draws: int = 2000) -> np.ndarray:
    z = np.random.default_rng(1).normal(size=(num_draws, *covariance.shape[:2]))
    return np.einsum("cij,dcj->dci", np.linalg.cholesky(covariance), z)


def test_bounds_enclose_the_log_mass_and_the_lower_one_meets_it_for_independent_coordinates() -> None:
    correlated = 0.9 * np.ones((SIZE, SIZE)) + 0.1 * np.eye(SIZE)
    covariance = np.stack([np.diag([1.0, 4.0, 0.01, 1e4]), correlated])
    log_mass = np.array([-3.0, 5.0])
    seen = watch(normal_draws(covariance), np.linalg.inv(covariance), log_mass)
    # The mean of the log density has the other half of the entropy.
    *bounds, num_coordinates = bound_log_masses(seen, NO_MASK)
    below, above = (np.asarray(b) + SIZE / 2 for b in bounds)
    assert num_coordinates.tolist() == [SIZE, SIZE]
    np.testing.assert_allclose(below[0], log_mass[0], atol=0.15)
    # The highest log density is that of the mode, half a nat for each coordinate above the mean.
    np.testing.assert_allclose(above[0], log_mass[0] + SIZE / 2, atol=0.15)
    assert below[1] < log_mass[1] - 1
    assert above[1] > log_mass[1] + 1


def test_a_chain_that_has_not_seen_its_mode_counts_by_the_curvature_there() -> None:
    # It moves a hundredth of the width around a typical point.
    wide = 1e4 * np.eye(SIZE)[None]
    seen = watch(100 + 0.01 * normal_draws(wide), np.linalg.inv(wide), np.zeros(1))
    below, above = (float(b[0]) + SIZE / 2 for b in bound_log_masses(seen, NO_MASK)[:2])
    assert above > -2, "the mode is as wide as its gradients say"
    assert below < -10, "and what was seen of it has little mass"


def test_chains_that_climb_or_fall_are_not_steady_where_that_explains_how_low_they_are() -> None:
    noise = np.random.default_rng(2).normal(size=50)
    course = np.stack([noise, noise + 0.2 * np.arange(50), noise - 0.2 * np.arange(50), np.full(50, -3.0)], axis=1)
    seen = init_seen(Position(jnp.zeros((4, 1)), None))
    for lp in course:
        seen = update_seen(seen, jnp.asarray(lp), seen.mean, seen.mean)
    assert is_steady(seen, jnp.full(4, 20.0)).tolist() == [True, False, False, True]
    # Ten nats a window do not climb as many in the rest of warmup.
    assert is_steady(seen, jnp.full(4, 300.0)).all()


@pytest.mark.parametrize(("log_mass", "lost"), [(-8.0, []), (-40.0, [3])])
def test_a_wide_mode_stays_and_padding_does_not_count(log_mass: float, lost: list[int]) -> None:
    variances = np.array([1.0, 1.0, 1.0, 1e6, 1.0])
    covariance = variances[:, None, None] * np.eye(SIZE)
    seen = watch(normal_draws(covariance, 200), np.linalg.inv(covariance), np.where(variances > 1, log_mass, 0.0))
    assert float(seen.lp[3] - seen.lp[0]) < -30, "each of them has a much lower density"
    sources = np.asarray(choose_sources(seen, NO_MASK))
    assert np.flatnonzero(sources != np.arange(5)).tolist() == lost
    padded = seen._replace(
        **{k: getattr(seen, k)._replace(local=jnp.zeros((5, 3, 1))) for k in ("mean", "square", "gradient")}
    )
    np.testing.assert_array_equal(choose_sources(padded, Position(None, jnp.zeros((3, 1)))), sources)


def test_no_chain_goes_where_squares_overflow() -> None:
    same = np.broadcast_to(np.eye(SIZE), (5, SIZE, SIZE))
    seen = watch(normal_draws(same, 200), same, np.zeros(5))
    escaped = seen._replace(
        square=Position(seen.square.shared.at[:2].set(np.inf), None),
        gradient=Position(seen.gradient.shared.at[:2].set(0.0), None),
    )
    assert choose_sources(escaped, NO_MASK).tolist() == [*range(5)]


def _log_density(q: jax.Array) -> jax.Array:
    near, low = (-0.5 * jnp.sum((q - c) ** 2) for c in (0.0, FAR))
    wide = -0.5 * jnp.sum(((q + FAR) / 30) ** 2) - SIZE * jnp.log(30.0)
    return jnp.logaddexp(jnp.logaddexp(near, wide), low - 40)


TARGET = FunctionTarget(_log_density)


@pytest.fixture(scope="module")
def warm_up() -> Any:
    """Return a function of options: `restarted` (iteration, chain), log densities, and positions at the last restarts."""

    def run(**options: Any) -> Any:
        kernel = Chees(Options(metric="diagonal", **options), NUM_WARMUP)

        def keys(i: Any) -> jax.Array:
            return jax.random.split(jax.random.fold_in(jax.random.key(0), i), NUM_CHAINS)

        def step(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            after, info = kernel.step(keys(i), state, TARGET, kernel.tuning(adaptation, True))
            adaptation = kernel.adapt(adaptation, state, after, info, TARGET)
            after, info = kernel.restart(adaptation, after, info)
            return (after, adaptation), (info.restarted, after.log_prior + after.log_likelihood, after.position.shared)

        @jax.jit
        def made(position: Position) -> Any:
            state = kernel.init(keys(NUM_WARMUP), position, TARGET)
            begin = (state, kernel.init_adaptation(state, TARGET))
            return jax.lax.scan(step, begin, jnp.arange(LAST))[1]

        start = np.random.default_rng(0).normal(size=(NUM_CHAINS, SIZE)).astype(np.float32)
        start[2] += FAR
        start[5] = 30 * start[5] - FAR
        return jax.tree.map(np.asarray, made(Position(jnp.asarray(start), None)))

    return run


def test_one_lost_chain_restarts_and_one_in_a_wide_mode_does_not(warm_up) -> None:
    restarted, lp, position = warm_up()
    assert np.flatnonzero(restarted.any(axis=0)).tolist() == [2]
    (at,) = np.flatnonzero(restarted[:, 2])
    assert is_restart(jnp.asarray(at + 1), NUM_WARMUP)
    assert lp[at - 1, 5] < lp[at - 1, 0] - 10, "the wide mode is as low as a lost chain would be"
    same = [c for c in range(NUM_CHAINS) if c != 2 and np.array_equal(position[at, c], position[at, 2])]
    assert len(same) == 1
    assert lp[at, 2] == lp[at, same[0]]
    assert not np.array_equal(position[at + 1, 2], position[at + 1, same[0]]), "they part at once"


def test_the_setting_turns_it_off(warm_up) -> None:
    restarted, lp, _ = warm_up(restart_lost_chains=False)
    assert not restarted.any()
    assert lp[-1, 2] < -30


NUM_CHAINS_POOLING, NUM_WARMUP_POOLING = 8, 200
WALL = 50.0
"""Beyond it the density falls so steeply that no trajectory of a common step size is accepted."""


def test_chains_far_above_and_in_minorities_of_two_count() -> None:
    assert near_others(jnp.asarray([-1.0, -2.0, 500.0, -1.5])).all()
    assert near_others(jnp.asarray([-1.0, -1e6])).all(), "of two chains neither is known to be lost"
    assert not near_others(jnp.full(3, jnp.nan)).any()


def test_a_chain_that_stops_moving_is_left_out_soon_and_comes_back_soon() -> None:
    running = jnp.full(4, 0.8)
    for _ in range(30):
        running = update_running(running, jnp.asarray([0.8, 0.7, 0.0, jnp.nan]))
    assert is_moving(running).tolist() == [True, True, False, False]
    running = update_running(running, jnp.asarray([0.8, 0.7, 0.9, 0.0]))
    assert is_moving(running).tolist() == [True, True, True, False]


def _log_density_pooling(q: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(q**2) - jnp.sum(jnp.where(jnp.abs(q) > WALL, 1e12 * (jnp.abs(q) - WALL) ** 2, 0.0))


TARGET_POOLING = FunctionTarget(_log_density_pooling)


def warm_up_pooling(kernel: Any, start: np.ndarray) -> tuple[Any, Any]:
    """Return all tunings on the way, and the last."""

    def keys(i: Any) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.key(0), i), len(start))

    @jax.jit
    def run(position: Position) -> Any:
        def step(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            tuning = kernel.tuning(adaptation, True)
            after, info = kernel.step(keys(i), state, TARGET_POOLING, tuning)
            return (after, kernel.adapt(adaptation, state, after, info, TARGET_POOLING)), tuning

        state = kernel.init(keys(NUM_WARMUP_POOLING), position, TARGET_POOLING)
        (_, adaptation), tunings = jax.lax.scan(
            step, (state, kernel.init_adaptation(state, TARGET_POOLING)), jnp.arange(NUM_WARMUP_POOLING)
        )
        return tunings, kernel.tuning(adaptation, False)

    return run(Position(jnp.asarray(start), None))


@pytest.fixture(scope="module", params=["chees", "nuts"])
def kernel(request) -> Any:
    made = {
        "chees": (Chees, CheesOptions(metric="diagonal")),
        "nuts": (Nuts, NutsOptions(max_tree_depth=5, metric="diagonal")),
    }[request.param]
    return made[0](made[1], NUM_WARMUP_POOLING)


def test_chains_have_steps_of_their_own_early_and_one_in_common_later(kernel) -> None:
    tunings, last = warm_up_pooling(kernel, np.random.default_rng(0).normal(size=(NUM_CHAINS_POOLING, 3)))
    steps, end = np.asarray(tunings.step_size), int(early_end(NUM_WARMUP_POOLING))
    assert end in window_ends(NUM_WARMUP_POOLING)
    assert (np.ptp(steps[2:end], axis=1) > 0).all()
    assert not np.ptp(steps[end:], axis=1).any()
    assert not np.ptp(last.step_size)


def test_a_lost_chain_neither_freezes_the_step_size_nor_steers_the_metric(kernel) -> None:
    start = np.random.default_rng(0).normal(size=(NUM_CHAINS_POOLING, 3))
    _, without = warm_up_pooling(kernel, start)
    start[5] = 1e7
    _, found = warm_up_pooling(kernel, start)
    # Of a normal target within the wall; the step size of eight chains instead of seven.
    np.testing.assert_allclose(found.metric.shared, 1.0, rtol=0.35)
    np.testing.assert_allclose(found.step_size[0], without.step_size[0], rtol=0.35)
