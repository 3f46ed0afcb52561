"""What is particular to ChEES-HMC."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Density, Position
from bayesmesh.kernels.chees import Chees, CheesTuning, Options

NUM_CHAINS, NUM_WARMUP = 16, 400
SD = jnp.asarray(np.geomspace(0.01, 100, 6))


def log_density(position: Position) -> Density:
    value = -0.5 * jnp.sum((position["x"] / SD) ** 2, axis=1)
    return Density(0 * value, value, {"x": -position["x"] / SD**2})


def keys(i: Any) -> jax.Array:
    return jax.random.split(jax.random.fold_in(jax.random.key(0), i), NUM_CHAINS)


def test_warmup_finds_scales_step_size_and_length() -> None:
    """An ill-conditioned normal, begun far from its mode: scales over four orders of magnitude."""
    kernel = Chees(Options(), NUM_WARMUP)

    @jax.jit
    def run(position: Position) -> Any:
        begin = kernel.warmup_init(kernel.init(position, log_density), {"x": jnp.ones(6)})
        state, info = jax.lax.scan(
            lambda state, i: kernel.warmup_step(keys(i), state, log_density), begin, jnp.arange(NUM_WARMUP)
        )
        return *kernel.warmup_finish(state), info

    state, tuning, info = run({"x": 30.0 + jax.random.normal(jax.random.key(1), (NUM_CHAINS, 6))})
    np.testing.assert_allclose(tuning.scale["x"], SD, rtol=1e-3)
    assert 0.5 < tuning.step_size < 2
    # In units of the scale the target is isotropic, with the criterion's optimum at 2.25. It has lower maxima at every
    # half period from there on, in one of which a search that began with other scales may end.
    assert 2.25 / 3.5 < tuning.trajectory_length < 2.25 * 3.5
    harmonic = 1 / np.mean(1 / np.maximum(np.asarray(info.acceptance_rate[-60:]), 1e-3), axis=1)
    np.testing.assert_allclose(harmonic.mean(), 0.7, atol=0.12)
    assert (np.abs(state.position["x"] / SD) < 6).all()


def test_lengths_are_jittered_by_the_number_of_the_step() -> None:
    """The Halton sequence goes on where it was: lengths depend on how many steps were made, and on nothing else."""
    kernel = Chees(Options(max_leapfrog_steps=12), 0)
    tuning = CheesTuning(jnp.asarray(0.125), jnp.asarray(2.0), {"x": SD})
    begin = kernel.init({"x": jnp.zeros((NUM_CHAINS, 6))}, log_density)

    @jax.jit
    def run(state: Any) -> Any:
        return jax.lax.scan(lambda s, i: kernel.step(keys(i), s, log_density, tuning), state, jnp.arange(7))[1].n_steps

    # 16 steps times 1/2, 1/4, 3/4, 1/8, 5/8, 3/8, 7/8; the last is cut at 12.
    np.testing.assert_array_equal(run(begin), [8, 4, 12, 2, 10, 6, 12])
    np.testing.assert_array_equal(run(begin._replace(num_steps=jnp.asarray(3, jnp.int32)))[:3], [2, 10, 6])


def test_a_trajectory_has_at_least_one_step() -> None:
    kernel = Chees(Options(), 0)
    tuning = CheesTuning(jnp.asarray(0.5), jnp.asarray(1e-9), {"x": SD})
    _, info = kernel.step(keys(0), kernel.init({"x": jnp.zeros((NUM_CHAINS, 6))}, log_density), log_density, tuning)
    assert info.n_steps == 1
