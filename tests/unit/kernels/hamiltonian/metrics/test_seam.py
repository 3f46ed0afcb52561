"""A metric is one class: a dense one, defined here, serves every Hamiltonian kernel, and no kernel is edited for it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from jax.scipy.linalg import solve_triangular
from scipy import stats

from bayesmesh.config.registry import component_path, load_component, read_options
from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel
from bayesmesh.kernels.base import SCALAR, Axes, Density, Position, Target
from bayesmesh.kernels.hamiltonian.metrics.base import Metric, count_finite
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS, DIMENSION = 16, 150, 150, 4

OPTIONS = {"hmc": {"num_leapfrog_steps": 4}, "chees": {}, "nuts": {"max_tree_depth": 5}}
ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((DIMENSION, DIMENSION)))[0]
ROOT = jnp.asarray(ROTATION * np.geomspace(0.05, 5, DIMENSION))
"""Columns are the principal axes, by their standard deviation: a factor of 100, along no coordinate."""


class Moments(NamedTuple):
    """Points seen, () float64, their mean (S,) and scatter (S, S)."""

    count: Any
    mean: Any
    scatter: Any


class DenseMetric(Metric[Any, Moments]):
    """The Cholesky factor of a covariance that is shrunk towards a small multiple of the identity."""

    def init(self, gradient: Position, mask: Position) -> jax.Array:
        del mask
        if gradient.local is not None:
            raise ValueError("a dense metric has no place for local coordinates; use metric: diagonal")
        return jnp.eye(gradient.shared.shape[1], dtype=gradient.shared.dtype)

    def move(self, data: jax.Array, momentum: Position) -> Position:
        return Position(momentum.shared @ data.T, None)

    def whiten_gradient(self, data: jax.Array, gradient: Position) -> Position:
        return Position(gradient.shared @ data, None)

    def whiten_position(self, data: jax.Array, position: Position) -> Position:
        return Position(solve_triangular(data, position.shared.T, lower=True).T, None)

    def init_estimate(self, like: Position) -> Moments:
        zero = jnp.zeros_like(like.shared[0])
        return Moments(jnp.zeros((), jnp.float64), zero, jnp.outer(zero, zero))

    def update_estimate(self, estimate: Moments, position: Position, gradient: Position) -> Moments:
        counts = count_finite(gradient)
        q = jnp.where(counts[:, None], position.shared, estimate.mean[None])
        total = estimate.count + counts.sum()
        mean = estimate.mean + (q - estimate.mean[None]).sum(axis=0) / jnp.maximum(total, 1)
        return Moments(total, mean, estimate.scatter + (q - estimate.mean[None]).T @ (q - mean[None]))

    def estimate(self, estimate: Moments) -> jax.Array:
        count = jnp.maximum(estimate.count, 2)
        weight = count / (count + 5)
        covariance = weight * estimate.scatter / (count - 1) + 1e-3 * (1 - weight) * jnp.eye(len(estimate.mean))
        return jnp.linalg.cholesky(covariance)

    def data_axes(self) -> Any:
        return Axes(None, None)

    def estimate_axes(self) -> Moments:
        return Moments(SCALAR, Axes(None), Axes(None, None))


TARGET = FunctionTarget(lambda q: -0.5 * jnp.sum((q @ jnp.linalg.inv(ROOT).T) ** 2))


def make(name: str, *, is_dense: bool, num_warmup: int = NUM_WARMUP) -> HamiltonianKernel[Any]:
    options = read_options(component_path("kernel", name))(metric="identity", **OPTIONS[name])
    kernel = load_component("kernel", name)(options, num_warmup)
    if is_dense:
        kernel.metric = DenseMetric()
    return kernel


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


@pytest.mark.parametrize("name", OPTIONS)
def test_a_dense_metric_plugs_into_every_kernel(name: str) -> None:
    """Its draws have the moments of a normal whose axes are no coordinates, for less than the identity's price."""
    tuning, draws, num_gradients = run(make(name, is_dense=True))
    assert effective_sizes(draws).min() >= 400
    pairs = np.einsum("...i,...j->...ij", draws, draws)[..., *np.triu_indices(DIMENSION)]
    expected = np.eye(DIMENSION)[np.triu_indices(DIMENSION)]
    series = [*np.moveaxis(draws, -1, 0), *(np.moveaxis(pairs, -1, 0) - expected[:, None, None])]
    z = [x.mean() / array_stats.mcse(np.ascontiguousarray(x), method="mean") for x in series]
    assert np.abs(z).max() < stats.norm.isf(1e-5 / 2 / len(z)), z

    # The metric is the covariance.
    covariance = np.asarray(tuning.metric @ tuning.metric.T)
    white = np.linalg.solve(np.asarray(ROOT), np.linalg.solve(np.asarray(ROOT), covariance).T)
    np.testing.assert_allclose(white, np.eye(DIMENSION), atol=0.3)

    _, plain, plain_gradients = run(make(name, is_dense=False))
    gain = (effective_sizes(draws).min() / num_gradients) / (effective_sizes(plain).min() / plain_gradients)
    assert gain > 3


@pytest.mark.parametrize("name", OPTIONS)
def test_its_arrays_are_part_of_the_state_with_axes_of_their_own(name: str) -> None:
    kernel = make(name, is_dense=True)

    def begin(q: jax.Array) -> Any:
        keys = jax.random.split(jax.random.key(0), NUM_CHAINS)
        return kernel.init_adaptation(kernel.init(keys, Position(q, None), TARGET), TARGET)

    shapes = jax.eval_shape(begin, jnp.zeros((NUM_CHAINS, DIMENSION)))
    assert shapes.metric.shape == (DIMENSION, DIMENSION)
    axes = kernel.adaptation_axes()
    jax.tree.map(
        lambda a, s: np.testing.assert_equal(len(a.names), s.ndim), axes, shapes, is_leaf=lambda x: isinstance(x, Axes)
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_what_a_metric_cannot_serve_it_refuses_in_words(name: str) -> None:
    class Local(Target):
        mask = Position(None, None)

        def log_density(self, position: Position) -> Density:
            value = -0.5 * (position.local**2).sum(axis=(1, 2)) - 0.5 * (position.shared**2).sum(axis=1)
            return Density(0 * value, value, jax.tree.map(jnp.negative, position))

    kernel = make(name, is_dense=True)
    state = kernel.init(
        jax.random.split(jax.random.key(0), 2), Position(jnp.ones((2, 3)), jnp.ones((2, 5, 1))), Local()
    )
    with pytest.raises(ValueError, match="dense metric has no place for local coordinates"):
        kernel.init_adaptation(state, Local())
