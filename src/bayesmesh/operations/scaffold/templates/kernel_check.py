"""`new_kernel` leaves its target as it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from scipy import stats

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.targets import FunctionTarget
from bayesmesh.operations.scaffold.templates.kernel import NewKernel, Options

NUM_CHAINS = 10_000


def p_value(target_scale: float) -> float:
    """Start at draws of N(0, 1), move towards N(0, target_scale^2), compare with N(0, 1)."""
    target = FunctionTarget(lambda x: -0.5 * jnp.sum((x / target_scale) ** 2))
    kernel = NewKernel(Options(initial_step_size=0.8), num_warmup=0)
    start = Position(jax.random.normal(jax.random.key(1), (NUM_CHAINS, 2), jnp.float64), None)
    keys = jax.random.split(jax.random.key(2), NUM_CHAINS)
    begin = kernel.init(keys, start, target)
    tuning = kernel.tuning(kernel.init_adaptation(begin, target), is_adapting=False)

    def step(i: jax.Array, state: Any) -> Any:
        return kernel.step(jax.vmap(lambda k: jax.random.fold_in(k, i))(keys), state, target, tuning)[0]

    state = jax.jit(lambda s: jax.lax.fori_loop(0, 20, step, s))(begin)
    assert not (state.position.shared == start.shared).all(), "the chains moved"
    return float(stats.kstest(state.position.shared.ravel(), "norm").pvalue)


def test_leaves_its_target_invariant() -> None:
    assert p_value(1.0) > 1e-4
    assert p_value(1.2) < 1e-4
