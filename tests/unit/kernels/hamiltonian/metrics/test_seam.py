"""A metric serves every Hamiltonian kernel by its name alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import stats

from bayesmesh.config.registry import load_component, options_class
from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS, DIMENSION = 16, 150, 150, 4

OPTIONS = {"hmc": {"num_leapfrog_steps": 4}, "chees": {}, "nuts": {"max_tree_depth": 5}}
ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((DIMENSION, DIMENSION)))[0]
ROOT = jnp.asarray(ROTATION * np.geomspace(0.05, 5, DIMENSION))
"""Columns are the principal axes, by their standard deviation: a factor of 100, along no coordinate."""


TARGET = FunctionTarget(lambda q: -0.5 * jnp.sum((q @ jnp.linalg.inv(ROOT).T) ** 2))


def make(name: str, metric: str) -> HamiltonianKernel[Any]:
    options = options_class("kernel", name)(metric=metric, **OPTIONS[name])
    return load_component("kernel", name)(options, NUM_WARMUP)


def run(kernel: HamiltonianKernel[Any]) -> tuple[Any, np.ndarray, float]:
    """Tuning, draws (chain, draw, dimension) in units of the principal axes, and gradients per draw."""

    def keys(i: Any) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.key(1), i), NUM_CHAINS)

    @jax.jit
    def go(position: Position) -> Any:
        def step(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            is_adapting = i < kernel.num_adaptive
            after, info = kernel.step(keys(i), state, TARGET, kernel.tuning(adaptation, is_adapting))
            adaptation = jax.lax.cond(
                is_adapting, lambda: kernel.adapt(adaptation, state, after, info, TARGET), lambda: adaptation
            )
            return (after, adaptation), (after.position.shared, info.n_steps)

        state = kernel.init(keys(0), position, TARGET)
        begin = (state, kernel.init_adaptation(state, TARGET))
        (_, adaptation), made = jax.lax.scan(step, begin, jnp.arange(NUM_WARMUP + NUM_DRAWS))
        return kernel.tuning(adaptation, False), *jax.tree.map(lambda x: x[NUM_WARMUP:], made)

    tuning, draws, num_gradients = go(Position(jax.random.normal(jax.random.key(2), (NUM_CHAINS, DIMENSION)), None))
    white = np.linalg.solve(np.asarray(ROOT), np.asarray(draws).reshape(-1, DIMENSION).T).T
    return tuning, np.swapaxes(white.reshape(draws.shape), 0, 1), float(num_gradients.mean())


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    return np.asarray([array_stats.ess(np.ascontiguousarray(draws[..., i]), method="mean") for i in range(DIMENSION)])


OTHERS = [pytest.param(name, "dense", marks=pytest.mark.verify) for name in OPTIONS if name != "nuts"]


@pytest.mark.parametrize(("name", "metric"), [("nuts", "dense"), ("nuts", "low_rank"), *OTHERS])
def test_correlations_are_learnt_under_every_kernel(name: str, metric: str) -> None:
    """Draws have the moments of a normal whose axes are no coordinates, for less than the identity's price."""
    kernel = make(name, metric)
    tuning, draws, num_gradients = run(kernel)
    assert effective_sizes(draws).min() >= 400
    pairs = np.einsum("...i,...j->...ij", draws, draws)[..., *np.triu_indices(DIMENSION)]
    expected = np.eye(DIMENSION)[np.triu_indices(DIMENSION)]
    series = [*np.moveaxis(draws, -1, 0), *(np.moveaxis(pairs, -1, 0) - expected[:, None, None])]
    z = [x.mean() / array_stats.mcse(np.ascontiguousarray(x), method="mean") for x in series]
    assert np.abs(z).max() < stats.norm.isf(1e-5 / 2 / len(z)), z

    # The metric is the covariance; a direction whose variance is within a factor of 2 is left alone.
    root = np.asarray(kernel.metric.move(tuning.metric, Position(jnp.eye(DIMENSION), None)).shared).T
    variances = np.linalg.eigvalsh(np.linalg.solve(ROOT, root @ root.T) @ np.linalg.inv(ROOT).T)
    assert 0.4 < variances.min() <= variances.max() < 2.5

    _, plain, plain_gradients = run(make(name, "identity"))
    gain = (effective_sizes(draws).min() / num_gradients) / (effective_sizes(plain).min() / plain_gradients)
    assert gain > 3
