"""`new_kernel` leaves its target as it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from scipy import stats

from bayesmesh.kernels import base
from bayesmesh.operations.scaffold.templates.kernel import NewKernel, Options, Tuning

NUM_CHAINS = 20_000


def p_value(target_scale: float) -> float:
    """Start at draws of N(0, 1), move towards N(0, target_scale^2), compare with N(0, 1)."""

    def log_density(position: base.Position) -> base.Density:
        z = position["x"] / target_scale
        return base.Density(jnp.zeros(len(z)), -0.5 * (z**2).sum(1), {"x": -z / target_scale})

    kernel = NewKernel(Options(), num_warmup=0)
    start = {"x": jax.random.normal(jax.random.key(1), (NUM_CHAINS, 2), jnp.float64)}
    tuning = Tuning(jnp.asarray(0.8, jnp.float64), {"x": jnp.ones(2)})

    def step(i: jax.Array, state: Any) -> Any:
        return kernel.step(jax.random.split(jax.random.key(i + 2), NUM_CHAINS), state, log_density, tuning)[0]

    state = jax.jit(lambda s: jax.lax.fori_loop(0, 20, step, s))(kernel.init(start, log_density))
    assert not (state.position["x"] == start["x"]).all(), "the chains moved"
    return float(stats.kstest(state.position["x"].ravel(), "norm").pvalue)


def test_leaves_its_target_invariant() -> None:
    assert p_value(1.0) > 1e-4
    assert p_value(1.2) < 1e-4
