"""What is particular to replica exchange: swaps, temperatures, and modes that the cold chains reach."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hmc import Hmc
from bayesmesh.kernels.hmc import Options as HmcOptions
from bayesmesh.kernels.replica_exchange import Options, ReplicaExchange
from bayesmesh.kernels.targets import FunctionTarget

POWER = 0.25
NORMAL = FunctionTarget(lambda q: -0.5 * jnp.sum(q**2), lambda q: -0.1 * jnp.sum(q**2))
TINY = HamiltonianTuning(jnp.asarray(1e-9), (), jnp.asarray(1e-9))
"""Step sizes with which nothing moves but what is swapped."""


def make(**options: Any) -> ReplicaExchange:
    return ReplicaExchange(Options(inverse_temperature=POWER, metric="identity", **options), 0)


def keys(num_chains: int, i: int = 0) -> jax.Array:
    return jax.random.split(jax.random.fold_in(jax.random.key(1), i), num_chains)


def step(kernel: ReplicaExchange, position: jax.Array, tuning: HamiltonianTuning = TINY, i: int = 0) -> Any:
    def one(q: jax.Array) -> Any:
        state = kernel.init(keys(len(q)), Position(q, None), NORMAL)
        return state, *kernel.step(keys(len(q), i), state, NORMAL, tuning)

    return jax.jit(one)(position)


@pytest.fixture(scope="module")
def swap_step() -> Any:
    """Positions before and after a step that moves nothing by itself, and the info."""
    num_chains = 8_000
    position = jnp.repeat(jnp.asarray([[0.5], [1.5]]), num_chains // 2, axis=0)
    state, after, info = step(make(num_leapfrog_steps=1), position)
    return state, after, info, num_chains // 2


def test_the_second_half_sees_a_tempered_likelihood(swap_step) -> None:
    state, _, _, num_cold = swap_step
    np.testing.assert_allclose(state.log_likelihood[:num_cold], -0.5 * 0.5**2)
    np.testing.assert_allclose(state.log_likelihood[num_cold:], -0.5 * 1.5**2 * POWER)
    np.testing.assert_allclose(state.gradient.shared[num_cold:, 0], -(POWER + 0.2) * 1.5)


def test_pairs_swap_with_the_metropolis_probability(swap_step) -> None:
    """The prior cancels, and of the likelihood remains the difference of the powers."""
    _, _, info, num_cold = swap_step
    expected = np.exp((1 - POWER) * (-0.5 * 1.5**2 + 0.5 * 0.5**2))
    z = (np.asarray(info.swapped).mean() - expected) / np.sqrt(expected * (1 - expected) / num_cold)
    assert abs(z) < 4.5


def test_a_swap_exchanges_both_positions_with_their_densities(swap_step) -> None:
    _, after, info, num_cold = swap_step
    cold, hot = np.split(np.asarray(after.position.shared[:, 0]), 2)
    swapped = np.asarray(info.swapped)
    np.testing.assert_allclose(cold, np.where(swapped, 1.5, 0.5), atol=1e-6)
    np.testing.assert_allclose(hot, np.where(swapped, 0.5, 1.5), atol=1e-6)
    np.testing.assert_allclose(after.log_likelihood[:num_cold], -0.5 * cold**2, rtol=1e-12)
    np.testing.assert_allclose(after.log_likelihood[num_cold:], -0.5 * hot**2 * POWER, rtol=1e-12)
    np.testing.assert_allclose(info.log_likelihood, after.log_likelihood[:num_cold], rtol=1e-12)


def test_pairs_are_strangers_to_each_other() -> None:
    """Reordering pairs, with both of their keys, reorders draws; a partner is what a chain depends on."""
    num_chains, kernel = 8, make(num_leapfrog_steps=3)
    position = Position(jax.random.normal(jax.random.key(4), (num_chains, 2)), None)
    tuning = HamiltonianTuning(jnp.asarray(0.3), (), jnp.asarray(0.5))
    order = np.random.default_rng(0).permutation(num_chains // 2)
    both = np.concatenate([order, order + num_chains // 2])
    one = jax.jit(lambda key, q: kernel.step(key, kernel.init(key, q, NORMAL), NORMAL, tuning))
    state, info = one(keys(num_chains), position)
    state_reordered, info_reordered = one(keys(num_chains)[both], Position(position.shared[both], None))
    np.testing.assert_array_equal(state_reordered.position.shared, state.position.shared[both])
    np.testing.assert_array_equal(info_reordered.swapped, info.swapped[order])


def test_each_half_has_a_step_size_of_its_own() -> None:
    """Both reach the acceptance that was asked for; the hot one is longer."""
    num_chains, num_warmup = 16, 200
    target = FunctionTarget(lambda q: -50.0 * jnp.sum(q**2), lambda q: -0.5 * jnp.sum(q**2))
    kernel = ReplicaExchange(
        Options(inverse_temperature=0.05, num_leapfrog_steps=3, metric="identity", target_acceptance=0.7), num_warmup
    )

    @jax.jit
    def run(position: Position) -> Any:
        def one(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            key = jax.random.split(jax.random.fold_in(jax.random.key(5), i), num_chains)
            after, info = kernel.step(key, state, target, kernel.tuning(adaptation, True))
            rates = (info.acceptance_rate.mean(), info.hot_acceptance_rate.mean())
            return (after, kernel.adapt(adaptation, state, after, info, target)), rates

        state = kernel.init(keys(num_chains), position, target)
        begin = (state, kernel.init_adaptation(state, target))
        (_, adaptation), rates = jax.lax.scan(one, begin, jnp.arange(num_warmup))
        return kernel.tuning(adaptation, False), rates

    tuning, rates = run(Position(0.1 * jax.random.normal(jax.random.key(6), (num_chains, 4)), None))
    for rate in rates:
        np.testing.assert_allclose(rate[-80:].mean(), 0.7, atol=0.1)
    np.testing.assert_allclose(tuning.extra / tuning.step_size, np.sqrt(101 / 6), rtol=0.3)


def test_the_metric_is_learnt_from_the_cold_chains_alone() -> None:
    num_chains = 6
    kernel = ReplicaExchange(Options(num_leapfrog_steps=1), 20)
    position = jnp.arange(1.0, 13.0).reshape(num_chains, 2)

    def learn(hot: jax.Array) -> Any:
        state = kernel.init(keys(num_chains), Position(jnp.concatenate([position[:3], hot]), None), NORMAL)
        adaptation = kernel.init_adaptation(state, NORMAL)
        _, info = kernel.step(keys(num_chains), state, NORMAL, kernel.tuning(adaptation, True))
        made = kernel.adapt(adaptation, state, state, info, NORMAL)
        return adaptation.metric, made.estimate

    one, other = jax.jit(learn)(position[3:]), jax.jit(learn)(100 * position[3:])
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert one[1].count == 3


def test_cold_chains_reach_both_modes_where_hmc_stays() -> None:
    """Two modes six standard deviations apart from the middle: weights 0.7 and 0.3 are found, and HMC keeps its start."""
    num_chains, num_steps, distance = 64, 400, 6.0

    def log_likelihood(q: jax.Array) -> jax.Array:
        modes = jnp.asarray([-distance, distance])
        return jax.nn.logsumexp(jnp.log(jnp.asarray([0.7, 0.3])) - 0.5 * (q[0] - modes) ** 2)

    target = FunctionTarget(log_likelihood, lambda q: -0.5 * (q[0] / 50) ** 2)
    exchange = ReplicaExchange(Options(inverse_temperature=0.05, num_leapfrog_steps=5, metric="identity"), 0)
    hmc = Hmc(HmcOptions(num_leapfrog_steps=5), 0)
    found = []
    for kernel, tuning in (
        (exchange, HamiltonianTuning(jnp.asarray(0.5), (), jnp.asarray(1.5))),
        (hmc, HamiltonianTuning(jnp.asarray(0.5), (), ())),
    ):

        @jax.jit
        def run(position: Position, kernel: Any = kernel, tuning: Any = tuning) -> jax.Array:
            def one(state: Any, i: jax.Array) -> Any:
                key = jax.random.split(jax.random.fold_in(jax.random.key(7), i), num_chains)
                state, _ = kernel.step(key, state, target, tuning)
                return state, state.position.shared[: kernel.num_chains_reported(num_chains), 0] > 0

            begin = kernel.init(keys(num_chains), position, target)
            return jax.lax.scan(one, begin, jnp.arange(num_steps))[1][num_steps // 4 :]

        found.append(np.asarray(run(Position(jnp.full((num_chains, 1), -distance), None))))
    by_chain = found[0].mean(axis=0)
    z = (by_chain.mean() - 0.3) / (by_chain.std(ddof=1) / np.sqrt(len(by_chain)))
    assert abs(z) < 4.5
    assert abs(by_chain.mean() - 0.3) < 0.1
    assert not found[1].any()


def test_half_of_the_chains_are_reported_and_they_come_in_pairs() -> None:
    kernel = make()
    assert (kernel.num_chains_reported(8), kernel.chain_multiple, kernel.interacts) == (4, 2, True)
    assert make(num_leapfrog_steps=7).expected_gradients() == 8
