"""The streaming walk: correct in distribution, by a test that detects wrong kernels, however a run is split or spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from bayesmesh_reproduction.benchmarks.metropolis import target
from bayesmesh_reproduction.benchmarks.metropolis.states import effective_sample_size
from bayesmesh_reproduction.streaming import metropolis
from bayesmesh_reproduction.streaming.adaptation import adapt_scale
from bayesmesh_reproduction.streaming.metropolis import BLOCK_STEPS, Program, Walk, compile_walk, lay_out
from bayesmesh_reproduction.streaming.variates import exponential

CHAINS, BURN, STEPS, SCALE = 4_000, 200, 400, 6.0
WORST = 4.5
"""Largest z-score that passes; ten are computed, on fixed seeds."""


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def density(x: jax.Array) -> jax.Array:
    value: jax.Array = target.density(x, exponential)
    return value


@pytest.fixture(scope="module")
def program() -> Program:
    with jax.enable_x64(True):
        return compile_walk(density, CHAINS, jax.devices()[:1], tile_chains=1024)


def z_scores(program: Program) -> dict[str, float]:
    """Return z-scores of moments and quantiles against the target's, after burn-in.

    Chains are independent, so that the spread of what each gives is the standard error, autocorrelated or not.
    """
    walk = program.advance(program.start(0.0), BURN, scale=SCALE, seed=7)
    before = program.chains(walk.total), program.chains(walk.squares)
    walk = program.advance(walk, STEPS, scale=SCALE, seed=7)
    means = (program.chains(walk.total) - before[0]) / STEPS
    squares = (program.chains(walk.squares) - before[1]) / (STEPS // BLOCK_STEPS)
    last = program.chains(walk.position).astype(np.float64)
    found = {
        "mean of all states": (means - target.MEAN),
        "variance of all states": (squares - target.VARIANCE - target.MEAN**2),
        "mean of the last": last - target.MEAN,
        "variance of the last": (last - target.MEAN) ** 2 - target.VARIANCE,
    }
    for probability in (0.05, 0.25, 0.5, 0.75, 0.95):
        quantile = optimize.brentq(lambda x, p=probability: target.cdf(x) - p, -30, 30)
        found[f"quantile {probability}"] = (last < quantile) - probability
    # Equal deviations of all chains, such as none beyond a quantile, have no spread.
    return {name: float(d.mean() / max(d.std(ddof=1) / np.sqrt(d.size), 1e-9)) for name, d in found.items()}


def test_the_stationary_distribution_is_the_targets(program: Program) -> None:
    missed = {name: z for name, z in z_scores(program).items() if abs(z) > WORST}
    assert not missed


def _one_key(bits: jax.Array, more: jax.Array) -> Any:
    """As published: the bits of the proposal also decide its acceptance."""
    return bits, more, bits, more


BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "reused bits": ("philox4x32", lambda *a: _one_key(*metropolis_philox(*a)[:2])),
    "acceptance of squared densities": ("uniform", lambda bits: metropolis_uniform(bits) ** 2),
    "acceptance turned round": ("uniform", lambda bits: 1 / (metropolis_uniform(bits) + 1e-30)),
    "a proposal that drifts": ("normal_pair", lambda a, b: [z + 0.05 for z in metropolis_normal(a, b)]),
}
metropolis_philox, metropolis_uniform = metropolis.philox4x32, metropolis.uniform
metropolis_normal = metropolis.normal_pair


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_kernel_is_detected(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, broken = BROKEN[what]
    monkeypatch.setattr(metropolis, name, broken)
    program = compile_walk(density, CHAINS, jax.devices()[:1], tile_chains=1024)
    assert max(map(abs, z_scores(program).values())) > 2 * WORST


def test_the_published_density_is_detected() -> None:
    """The published density is the harmonic mean of the components instead of their sum."""

    def harmonic(x: jax.Array) -> jax.Array:
        parts = [
            jnp.log(w) + jnp.log(s) + (x - m) ** 2 / (2 * s**2)
            for w, m, s in zip(target.WEIGHTS, target.LOCATIONS, target.SCALES, strict=True)
        ]
        value: jax.Array = jnp.exp(-jax.nn.logsumexp(jnp.stack(parts), axis=0)).astype(jnp.float32)
        return value

    program = compile_walk(harmonic, CHAINS, jax.devices()[:1], tile_chains=1024)
    assert abs(z_scores(program)["variance of the last"]) > 2 * WORST


def test_a_run_that_is_split_or_spread_is_the_same_run(program: Program) -> None:
    def arrays(program: Program, *steps: int) -> list[np.ndarray]:
        walk: Walk = program.start(0.5)
        for number in steps:
            walk = program.advance(walk, number, scale=1.0, seed=3)
        assert int(walk.taken) == sum(steps)
        return [program.chains(each) for each in walk[:-1]]

    whole = arrays(program, 45)
    other = compile_walk(density, CHAINS, jax.devices(), tile_chains=500)
    assert np.prod(other.shape[:2]) >= 8
    for cut in (arrays(program, 8, 3, 2, 32), arrays(other, 45)):
        np.testing.assert_array_equal(cut[0], whole[0])
        np.testing.assert_allclose(cut[1], whole[1], rtol=0, atol=1e-4)
        for thinned in (2, 3):
            np.testing.assert_allclose(cut[thinned], whole[thinned], rtol=1e-12)
    assert not np.array_equal(arrays(program, 44)[0], whole[0])
    # One more step moves some chains, and adds one state to the sums.
    one = arrays(program, 46)
    np.testing.assert_allclose(one[1] - whole[1], one[0], rtol=0, atol=1e-4)


def test_chains_do_not_depend_on_their_number(program: Program) -> None:
    few = compile_walk(density, 5, jax.devices()[:1])
    alone, among = (p.chains(p.advance(p.start(0.0), 20, scale=1.0, seed=1).position) for p in (few, program))
    np.testing.assert_array_equal(alone, among[:5])
    assert np.unique(among[:40]).size > 35


def test_moments_are_of_all_states(program: Program) -> None:
    walk = program.advance(program.start(0.0), 200, scale=SCALE, seed=5)
    moments = program.moments(walk)
    assert moments.num_states == CHAINS * 200
    assert moments.mean == pytest.approx(target.MEAN, abs=0.1)
    assert moments.variance == pytest.approx(target.VARIANCE, rel=0.1)
    assert np.isnan(program.moments(program.advance(program.start(0.0), 3, scale=1.0, seed=0)).variance)


@pytest.mark.parametrize("mean", [0.0, 10_000.0])
def test_the_variance_does_not_depend_on_the_location_of_the_target(mean: float) -> None:
    """Target N(mean, 1), started at its mean: mean square and squared mean are over the same states."""
    with jax.enable_x64(True):
        program = compile_walk(lambda x: jnp.exp(-0.5 * (x - mean) ** 2), CHAINS, jax.devices()[:1])
        walk = program.advance(program.start(mean), 400, scale=2.4, seed=4)
    moments = program.moments(walk)
    # 50 of 400 states of each chain, the first few near the start, with an autocorrelation time of a few states.
    effective = CHAINS * 50 / 4
    assert abs(moments.mean - mean) < 5 / np.sqrt(effective)
    assert abs(moments.variance - 1) < 0.01 + 5 * np.sqrt(2 / effective)


def test_layouts_hold_all_chains_with_little_padding() -> None:
    for chains, devices in ((1, 2), (16, 2), (17, 2), (1000, 2), (99_999, 7), (10**6, 2)):
        num_devices, num_tiles, tile_chains = lay_out(chains, devices)
        held = num_devices * num_tiles * tile_chains
        assert chains <= held <= chains + 17 * num_devices * num_tiles
        assert tile_chains <= 2048


def test_the_scale_is_adapted_to_an_acceptance_of_044(program: Program) -> None:
    scale = adapt_scale(density, 0.0, seed=1)
    assert 5 < scale < 9
    walk = program.advance(program.start(0.0), 100, scale=scale, seed=2)
    moved = program.chains(program.advance(walk, 1, scale=scale, seed=2).position) != program.chains(walk.position)
    assert moved.mean() == pytest.approx(0.44, abs=0.04)


def test_the_density_in_float32_agrees_with_float64() -> None:
    x = np.linspace(-40, 50, 20_001)
    x = x.astype(np.float32)
    found = np.asarray(density(jnp.asarray(x)), np.float64)
    exact = target.density(x.astype(np.float64), np.exp)
    # In the tails the exponent has two integer digits, which leaves float32 fewer digits after the point.
    np.testing.assert_allclose(found, exact, rtol=2e-5)
    core = np.abs(x) < 10
    np.testing.assert_allclose(found[core], exact[core], rtol=2e-6)
    assert found.min() > 0


def test_the_exponential_is_accurate_and_does_not_wrap() -> None:
    x = np.linspace(-86.9, 80, 100_001).astype(np.float32)
    error = np.abs(np.asarray(exponential(x), np.float64) / np.exp(x.astype(np.float64)) - 1)
    assert np.all(error < 3e-7 + 7e-8 * np.abs(x))
    low = np.asarray(exponential(np.array([-87, -1e3, -1e30, -np.inf], np.float32)))
    assert np.all((low > 0) & (low < 2e-38))


def test_the_effective_sample_size_of_independent_draws_is_their_number() -> None:
    draws = np.random.default_rng(0).normal(target.MEAN, np.sqrt(target.VARIANCE), (4000, 10))
    assert effective_sample_size(draws.mean(axis=1)) == pytest.approx(draws.size, rel=0.1)
    assert effective_sample_size(np.zeros(4000)) < 100_000 / 2
