"""One lost or slow chain neither freezes nor steers what the chains learn together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.pooling import is_moving, near_others, update_running
from bayesmesh.kernels.adaptation.windows import early_end, window_ends
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.chees import Chees
from bayesmesh.kernels.chees import Options as CheesOptions
from bayesmesh.kernels.nuts import Nuts
from bayesmesh.kernels.nuts import Options as NutsOptions
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, NUM_WARMUP = 8, 200
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


def _log_density(q: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(q**2) - jnp.sum(jnp.where(jnp.abs(q) > WALL, 1e12 * (jnp.abs(q) - WALL) ** 2, 0.0))


TARGET = FunctionTarget(_log_density)


def warm_up(kernel: Any, start: np.ndarray) -> tuple[Any, Any]:
    """Return all tunings on the way, and the last."""

    def keys(i: Any) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.key(0), i), len(start))

    @jax.jit
    def run(position: Position) -> Any:
        def step(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            tuning = kernel.tuning(adaptation, True)
            after, info = kernel.step(keys(i), state, TARGET, tuning)
            return (after, kernel.adapt(adaptation, state, after, info, TARGET)), tuning

        state = kernel.init(keys(NUM_WARMUP), position, TARGET)
        (_, adaptation), tunings = jax.lax.scan(
            step, (state, kernel.init_adaptation(state, TARGET)), jnp.arange(NUM_WARMUP)
        )
        return tunings, kernel.tuning(adaptation, False)

    return run(Position(jnp.asarray(start), None))


@pytest.fixture(scope="module", params=["chees", "nuts"])
def kernel(request) -> Any:
    made = {
        "chees": (Chees, CheesOptions(metric="diagonal")),
        "nuts": (Nuts, NutsOptions(max_tree_depth=5, metric="diagonal")),
    }[request.param]
    return made[0](made[1], NUM_WARMUP)


def test_chains_have_steps_of_their_own_early_and_one_in_common_later(kernel) -> None:
    tunings, last = warm_up(kernel, np.random.default_rng(0).normal(size=(NUM_CHAINS, 3)))
    steps, end = np.asarray(tunings.step_size), int(early_end(NUM_WARMUP))
    assert end in window_ends(NUM_WARMUP)
    assert (np.ptp(steps[2:end], axis=1) > 0).all()
    assert not np.ptp(steps[end:], axis=1).any()
    assert not np.ptp(last.step_size)


def test_a_lost_chain_neither_freezes_the_step_size_nor_steers_the_metric(kernel) -> None:
    start = np.random.default_rng(0).normal(size=(NUM_CHAINS, 3))
    _, without = warm_up(kernel, start)
    start[5] = 1e7
    _, found = warm_up(kernel, start)
    # Of a normal target within the wall; the step size of eight chains instead of seven.
    np.testing.assert_allclose(found.metric.shared, 1.0, rtol=0.35)
    np.testing.assert_allclose(found.step_size[0], without.step_size[0], rtol=0.35)
