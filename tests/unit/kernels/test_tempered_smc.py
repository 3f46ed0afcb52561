"""What is particular to tempered sequential Monte Carlo: weights, resampling, powers, and the evidence."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.analyses.evidence.estimate import combine_groups
from bayesmesh.kernels.base import Position, Target
from bayesmesh.kernels.targets import FunctionTarget
from bayesmesh.kernels.tempered_smc import (
    Options,
    TemperedSmc,
    largest_rise,
    resample_systematically,
    weigh,
)

NUM_CHAINS, NUM_SETS, NUM_WARMUP, DIMENSION = 64, 20, 100, 2
PRIOR_SCALE, NOISE, CENTRE = 10.0, 0.5, 3.0


def log_prior(q: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((q / PRIOR_SCALE) ** 2)


def log_likelihood(q: jax.Array) -> jax.Array:
    """A normal likelihood; its mean under the prior is a normal density of variance prior plus noise."""
    return jnp.sum(-0.5 * ((q - CENTRE) / NOISE) ** 2 - math.log(NOISE * math.sqrt(2 * math.pi)))


NORMAL = FunctionTarget(log_likelihood, log_prior)
MODES = FunctionTarget(
    lambda q: jax.nn.logsumexp(
        jnp.log(jnp.asarray([0.7, 0.3])) + jax.vmap(log_likelihood)(jnp.stack([q, q + 2 * CENTRE]))
    ),
    log_prior,
)
"""Modes at 3 and -3 in both coordinates, seventeen standard deviations apart."""

VARIANCE = PRIOR_SCALE**2 + NOISE**2
LOG_EVIDENCE = DIMENSION * (-0.5 * CENTRE**2 / VARIANCE - 0.5 * math.log(2 * math.pi * VARIANCE))
"""Of both targets: the prior is symmetric."""


def keys(seed: Any, iteration: Any) -> jax.Array:
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), iteration), NUM_CHAINS)


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, 0, 0))
def run(target: Target, num_warmup: jax.Array, seed: jax.Array) -> Any:
    """Positions and statistics (iteration, ...) of warmup and draws of one set of chains, begun in the prior."""
    kernel = TemperedSmc(Options(), 0).with_arguments({}, num_warmup)
    start = PRIOR_SCALE * jax.random.normal(jax.random.key(100 + seed), (NUM_CHAINS, DIMENSION))
    state = kernel.init(keys(seed, 10_000), Position(start, None), target)

    def step(carry: Any, i: jax.Array) -> Any:
        state, adaptation = carry
        is_adapting = i < num_warmup
        after, info = kernel.step(keys(seed, i), state, target, kernel.tuning(adaptation, is_adapting))
        adapted = kernel.adapt(adaptation, state, after, info, target)
        adaptation = jax.tree.map(lambda new, old: jnp.where(is_adapting, new, old), adapted, adaptation)
        return (after, adaptation), (after.position.shared, {k: getattr(info, k) for k in kernel.statistics})

    begin = (state, kernel.init_adaptation(state, target))
    return jax.lax.scan(step, begin, jnp.arange(NUM_WARMUP + 10))[1]


SHORT = (1, 2, 8)
"""Lengths of warmup in which the way takes fewer steps than it should."""


def run_sets(target: Target) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return sets with enough warmup, and behind them one with each of the short ones."""
    num_warmup = jnp.asarray([NUM_WARMUP] * NUM_SETS + list(SHORT), jnp.int32)
    return jax.device_get(run(target, num_warmup, jnp.arange(len(num_warmup))))


@pytest.fixture(scope="module")
def every() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    return run_sets(NORMAL)


@pytest.fixture(scope="module")
def normal(every) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    return jax.tree.map(lambda x: x[:NUM_SETS], every)


def test_the_evidence_is_that_of_the_closed_form(normal) -> None:
    """The mean of the evidence itself, over sets, is unbiased but for the adaptation."""
    estimates = normal[1]["log_evidence"][:, -1]
    ratio = np.exp(estimates - LOG_EVIDENCE)
    assert ratio.std(ddof=1) < 1, "the estimate is useful"
    assert abs(ratio.mean() - 1) < 4.5 * ratio.std(ddof=1) / math.sqrt(NUM_SETS)
    together = combine_groups(estimates, NUM_SETS * NUM_CHAINS)
    assert together.error < 0.1
    assert abs(together.log_evidence - LOG_EVIDENCE) < 3 * together.error


def test_powers_rise_to_one_by_changes_of_the_share_that_was_asked_for(normal) -> None:
    powers, share = normal[1]["inverse_temperature"], normal[1]["effective_share"]
    assert (np.diff(powers, axis=1) >= 0).all()
    assert (powers[:, 0] < 0.01).all()
    assert (powers[:, NUM_WARMUP // 2 - 1] == 1).all(), "before the last iteration that may change it"
    for powers_of_set in powers:
        changes = np.flatnonzero(np.diff(powers_of_set)) + 1
        assert len(changes) >= 2
        assert (changes % 5 == 0).all()
    np.testing.assert_allclose(share[:, -1], 0.5, rtol=1e-6)


def test_gradients_after_resampling_are_counted(normal) -> None:
    """Below power 1 the longest trajectory stays as it is; a resampled chain takes one gradient more."""
    num_gradients = normal[1]["n_steps"]
    assert (num_gradients[:, 0] >= 2).all()
    assert (num_gradients[:, -10:].min(axis=1) >= 1).all()


def test_log_densities_are_those_of_the_target_at_every_power(normal) -> None:
    positions, statistics = normal
    flat = jnp.asarray(positions[0]).reshape(-1, DIMENSION)
    expected = jax.vmap(log_likelihood)(flat).reshape(positions.shape[1:3])
    np.testing.assert_allclose(statistics["log_likelihood"][0], expected, rtol=1e-9)
    expected = expected + jax.vmap(log_prior)(flat).reshape(expected.shape)
    np.testing.assert_allclose(statistics["lp"][0], expected, rtol=1e-9)


def test_chains_are_draws_of_the_posterior_at_the_end_of_warmup(normal) -> None:
    variance = 1 / (PRIOR_SCALE**-2 + NOISE**-2)
    standard = (normal[0][:, NUM_WARMUP - 1] - variance * CENTRE / NOISE**2) / math.sqrt(variance)
    of_sets = standard.mean(axis=(1, 2))
    assert abs(of_sets.mean()) < 4.5 * of_sets.std(ddof=1) / math.sqrt(NUM_SETS)
    np.testing.assert_allclose((standard**2).mean(), 1, atol=0.15)


def test_both_modes_have_their_weight_and_the_evidence_counts_both() -> None:
    """No trajectory passes from one to the other; the population divides in time."""
    positions, statistics = jax.tree.map(lambda x: x[:NUM_SETS], run_sets(MODES))
    share = (positions[:, -1, :, 0] > 0).mean(axis=1)
    assert abs(share.mean() - 0.7) < 4.5 * share.std(ddof=1) / math.sqrt(NUM_SETS)
    assert share.std(ddof=1) < 0.25
    ratio = np.exp(statistics["log_evidence"][:, -1] - LOG_EVIDENCE)
    assert abs(ratio.mean() - 1) < 4.5 * ratio.std(ddof=1) / math.sqrt(NUM_SETS)


@pytest.mark.parametrize("which", range(len(SHORT)))
def test_a_short_warmup_ends_at_power_one_and_says_what_it_cost(every, which: int) -> None:
    statistics = {k: v[NUM_SETS + which] for k, v in every[1].items()}
    assert (statistics["inverse_temperature"][SHORT[which] - 1 :] == 1).all()
    assert (statistics["effective_share"][SHORT[which] :] < 0.2).all()
    assert np.isfinite(statistics["log_evidence"]).all()


def test_a_metric_that_does_not_adapt_stays() -> None:
    kernel = TemperedSmc(Options(metric="identity"), 10)
    start = Position(jax.random.normal(jax.random.key(1), (NUM_CHAINS, DIMENSION)), None)

    @jax.jit
    def adapt_once(position: Position) -> Any:
        state = kernel.init(keys(0, 0), position, NORMAL)
        adaptation = kernel.init_adaptation(state, NORMAL)
        after, info = kernel.step(keys(0, 1), state, NORMAL, kernel.tuning(adaptation, True))
        return kernel.adapt(adaptation, state, after, info, NORMAL)

    adapted = adapt_once(start)
    assert adapted.metric == ()
    assert 0 < adapted.extra.previous < 1


def test_resampling_weighs_by_the_rise_of_the_power_alone() -> None:
    """What chains have left behind was weighed before; steps too short to leave a place show who was chosen."""
    kernel = TemperedSmc(Options(metric="identity"), 10)
    start = jax.random.normal(jax.random.key(3), (NUM_CHAINS, DIMENSION))
    state = kernel.init(keys(0, 0), Position(start, None), NORMAL)
    tuning = kernel.tuning(kernel.init_adaptation(state, NORMAL), True)
    tempering = tuning.extra._replace(previous=jnp.asarray(0.3), inverse_temperature=jnp.asarray(0.32))
    tempering = tempering._replace(ancestor=jnp.arange(NUM_CHAINS, dtype=jnp.int32) // 2)
    tuning = tuning._replace(step_size=jnp.asarray(1e-9), extra=tempering)
    after, info = jax.jit(lambda state: kernel.step(keys(0, 1), state, NORMAL, tuning))(state)
    chosen = np.abs(after.position.shared[:, None] - start[None]).sum(axis=-1).argmin(axis=1)
    expected = NUM_CHAINS * np.asarray(jax.nn.softmax(0.02 * jax.vmap(log_likelihood)(start)))
    assert expected.max() > 1.5
    counts = np.bincount(chosen, minlength=NUM_CHAINS)
    assert ((counts == np.floor(expected)) | (counts == np.ceil(expected))).all()
    ancestor = chosen // 2
    np.testing.assert_array_equal(info.num_relatives, np.bincount(ancestor)[ancestor])


def test_relatives_are_counted_from_the_prior_on_and_stay_after_warmup(normal) -> None:
    num_relatives = normal[1]["num_relatives"]
    assert num_relatives.shape == (NUM_SETS, NUM_WARMUP + 10, NUM_CHAINS)
    num_ancestors = (1 / num_relatives).sum(axis=2)
    np.testing.assert_allclose(num_ancestors, np.round(num_ancestors), rtol=1e-12)
    changes = np.diff(normal[1]["inverse_temperature"], axis=1) > 0
    assert (num_ancestors[:, 0] < NUM_CHAINS).all(), "the first iteration resamples"
    assert (np.diff(num_ancestors, axis=1) <= 0).all()
    assert (np.diff(num_ancestors, axis=1)[~changes] == 0).all()
    assert ((num_ancestors[:, -1] > 5) & (num_ancestors[:, -1] < num_ancestors[:, 0])).all()


# -- weights ---------------------------------------------------------------------------------------------------------


def test_the_rise_gives_weights_their_share_or_is_all_that_is_left() -> None:
    log_weight = jnp.asarray(np.random.default_rng(0).normal(0, 1e3, 50)).at[3].set(jnp.nan)
    rise = largest_rise(log_weight, jnp.asarray(0.8), 0.6)
    assert 0 < rise < 0.8
    np.testing.assert_allclose(weigh(log_weight, rise)[1], 0.6, rtol=1e-6)
    assert largest_rise(1e-6 * log_weight, jnp.asarray(0.8), 0.6) == 0.8


def test_a_likelihood_that_varies_without_end_still_raises_the_power() -> None:
    rise = largest_rise(jnp.asarray([0.0, -1e300]), jnp.asarray(1.0), 0.9)
    assert 0 < rise < 1e-17


def test_chains_come_as_often_as_their_weight_says_rounded_up_or_down() -> None:
    """Systematic resampling; a chain whose likelihood is not finite keeps its place and gives none."""
    log_weight = jnp.asarray(np.random.default_rng(1).normal(0, 2, 40))
    expected = 40 * np.asarray(jax.nn.softmax(log_weight))
    counts = np.asarray(
        [
            np.bincount(resample_systematically(key, log_weight), minlength=40)
            for key in jax.random.split(jax.random.key(0), 200)
        ]
    )
    assert ((counts == np.floor(expected)) | (counts == np.ceil(expected))).all()
    error = np.sqrt(counts.var(axis=0).max() / 200)
    np.testing.assert_allclose(counts.mean(axis=0), expected, atol=5 * error)
    lost = np.asarray(resample_systematically(jax.random.key(0), log_weight.at[7].set(jnp.nan)))
    assert lost[7] == 7
    assert (lost == 7).sum() == 1


def test_equal_weights_leave_every_chain_in_its_place() -> None:
    chosen = resample_systematically(jax.random.key(2), jnp.zeros(37))
    np.testing.assert_array_equal(chosen, np.arange(37))
