"""What is particular to ChEES-HMC."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.chees import Chees, Options
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, NUM_WARMUP = 16, 400
SD = jnp.asarray(np.geomspace(0.01, 100, 6))
TARGET = FunctionTarget(lambda q: -0.5 * jnp.sum((q / SD) ** 2))
ORIGIN = Position(jnp.zeros((NUM_CHAINS, 6)), None)


def keys(i: Any) -> jax.Array:
    return jax.random.split(jax.random.fold_in(jax.random.key(0), i), NUM_CHAINS)


def tuning_of(step_size: float, length: float) -> HamiltonianTuning:
    return HamiltonianTuning(jnp.asarray(step_size), Position(SD, None), jnp.asarray(length))


def test_warmup_finds_scales_step_size_and_length() -> None:
    """An ill-conditioned normal, begun far from its mode: scales over four orders of magnitude."""
    kernel = Chees(Options(metric="diagonal"), NUM_WARMUP)

    @jax.jit
    def run(position: Position) -> Any:
        def step(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            after, info = kernel.step(keys(i), state, TARGET, kernel.tuning(adaptation, True))
            return (after, kernel.adapt(adaptation, state, after, info, TARGET)), info.acceptance_rate

        state = kernel.init(keys(NUM_WARMUP), position, TARGET)
        begin = (state, kernel.init_adaptation(state, TARGET))
        (state, adaptation), acceptance_rate = jax.lax.scan(step, begin, jnp.arange(NUM_WARMUP))
        return state, kernel.tuning(adaptation, False), acceptance_rate

    start = 30.0 + jax.random.normal(jax.random.key(1), (NUM_CHAINS, 6))
    state, tuning, acceptance_rate = run(Position(start, None))
    np.testing.assert_allclose(tuning.metric.shared, SD, rtol=1e-3)
    assert ((tuning.step_size > 0.5) & (tuning.step_size < 2)).all()
    # In units of the scale the target is isotropic, with the criterion's optimum at 2.25. It has lower maxima at every
    # half period from there on, and the search begins below all of them once the scales are known.
    assert 2.25 / 1.5 < tuning.extra < 2.25 * 1.5
    harmonic = 1 / np.mean(1 / np.maximum(np.asarray(acceptance_rate[-60:]), 1e-3), axis=1)
    np.testing.assert_allclose(harmonic.mean(), 0.7, atol=0.12)
    assert (np.abs(state.position.shared / SD) < 6).all()


def test_lengths_are_jittered_by_the_number_of_the_step() -> None:
    """The Halton sequence goes on where it was: lengths depend on how many steps were made, and on nothing else."""
    kernel, tuning = Chees(Options(max_leapfrog_steps=12, metric="diagonal"), 0), tuning_of(0.125, 2.0)
    begin = kernel.init(keys(9), ORIGIN, TARGET)

    @jax.jit
    def run(state: Any) -> Any:
        def step(state: Any, i: jax.Array) -> Any:
            after, info = kernel.step(keys(i), state, TARGET, tuning)
            return after, info.n_steps

        return jax.lax.scan(step, state, jnp.arange(7))[1]

    # 16 steps times 1/2, 1/4, 3/4, 1/8, 5/8, 3/8, 7/8; the last is cut at 12.
    np.testing.assert_array_equal(run(begin), [8, 4, 12, 2, 10, 6, 12])
    np.testing.assert_array_equal(run(begin._replace(num_steps=jnp.asarray(3, jnp.int32)))[:3], [2, 10, 6])


def test_a_trajectory_has_at_least_one_step() -> None:
    kernel = Chees(Options(metric="diagonal"), 0)
    _, info = kernel.step(keys(0), kernel.init(keys(1), ORIGIN, TARGET), TARGET, tuning_of(0.5, 1e-9))
    assert info.n_steps == 1


@pytest.mark.parametrize(("first", "expected"), [(1e9, 0.5 * 256), (1e-9, 0.25)])
def test_the_search_for_a_length_stays_where_it_has_an_effect(first: float, expected: float) -> None:
    """Between one step and the cap, with the smaller and the larger of the step size in use and its average."""
    kernel = Chees(Options(metric="diagonal"), 100)
    state = kernel.init(keys(0), ORIGIN, TARGET)
    adaptation = kernel.init_adaptation(state, TARGET)
    state = state._replace(num_steps=jnp.asarray(50, jnp.int32))
    log_step = jnp.log(jnp.full(NUM_CHAINS, 0.5 if first > 1 else 0.25))
    average = jnp.log(jnp.full(NUM_CHAINS, 0.25 if first > 1 else 0.5))
    step_size = adaptation.step_size._replace(log_step=log_step, log_step_average=average)
    length = adaptation.extra._replace(log_length=jnp.log(jnp.asarray(first)))
    adaptation = adaptation._replace(step_size=step_size, extra=length)
    after, info = kernel.step(keys(0), state, TARGET, tuning_of(jnp.exp(log_step[0]), 1.0))
    found = kernel.adapt(adaptation, state, after, info, TARGET)
    np.testing.assert_allclose(jnp.exp(found.extra.log_length), expected, rtol=1e-12)


def test_the_step_size_follows_the_harmonic_mean() -> None:
    """One chain that seldom moves is not outvoted by those that always do; a lost chain has no vote."""
    kernel = Chees(Options(metric="diagonal"), 100)
    _, info = kernel.step(keys(0), kernel.init(keys(1), ORIGIN, TARGET), TARGET, tuning_of(0.5, 1.0))
    rate = jnp.ones(NUM_CHAINS).at[0].set(0.01)
    everyone = jnp.ones(NUM_CHAINS, bool)
    found = kernel.acceptance_statistic(info._replace(acceptance_rate=rate), everyone)
    np.testing.assert_allclose(found, NUM_CHAINS / (100 + NUM_CHAINS - 1), rtol=1e-12)
    without = kernel.acceptance_statistic(info._replace(acceptance_rate=rate), everyone.at[0].set(False))
    np.testing.assert_allclose(without, 1.0, rtol=1e-12)
