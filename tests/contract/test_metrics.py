"""The contract of every metric found: its maps belong to one matrix A, and warmup can rely on its estimates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.blocks import METRICS
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Axes, Position
from bayesmesh.kernels.hamiltonian.metrics import load_metric
from bayesmesh.kernels.hamiltonian.metrics.base import Metric

NUM_CHAINS, NUM_SHARED, NUM_ENTRIES, NUM_LIVING = 6, 3, 4, 3
MANY = 14
"""Points that determine any metric of these coordinates."""
SCALES = np.geomspace(0.2, 5, NUM_SHARED)
MASK = Position(None, (jnp.arange(NUM_ENTRIES) < NUM_LIVING).astype(jnp.float64)[:, None])

AnyMetric = Metric[Any, Any]


def draw(seed: int, num_chains: int = NUM_CHAINS, dtype: str = "float64") -> Position:
    """Points of every chain, 0 in the entry of padding."""
    generator = np.random.default_rng(seed)
    shared = SCALES * generator.standard_normal((num_chains, NUM_SHARED))
    local = generator.standard_normal((num_chains, NUM_ENTRIES, 1)) * np.asarray(MASK.local)
    return Position(jnp.asarray(shared, dtype), jnp.asarray(local, dtype))


def fit(metric: AnyMetric, position: Position) -> Position:
    """Leave out the local part for a metric that refuses it in words."""
    try:
        metric.init(position, MASK)
    except ValueError as error:
        if "local" not in str(error):
            raise
        return position._replace(local=None)
    return position


def learn(metric: AnyMetric, *batches: tuple[Position, Position]) -> Any:
    estimate, update = metric.init_estimate(batches[0][0]), jax.jit(metric.update_estimate)
    for position, gradient in batches:
        estimate = update(estimate, position, gradient)
    return jax.jit(metric.estimate)(estimate)


def dot(a: Position, b: Position) -> jax.Array:
    """Sum over coordinates, per chain."""
    return sum(((x * y).reshape(len(x), -1).sum(axis=1) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)), 0)


def assert_close(a: Any, b: Any, rtol: float = 1e-9) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-12), a, b)


def assert_same_maps(metric: AnyMetric, one: Any, other: Any) -> None:
    """The same matrix: how a metric writes it, such as the order of its directions, is its own affair."""
    probe = fit(metric, draw(20))
    for transform in (metric.move, metric.whiten_gradient, metric.whiten_position):
        assert_close(transform(one, probe), transform(other, probe), rtol=1e-6)


@pytest.fixture(params=METRICS)
def metric(request: pytest.FixtureRequest) -> AnyMetric:
    return load_metric(request.param)


@pytest.fixture(params=[name for name in METRICS if load_metric(name).is_adaptive])
def adaptive(request: pytest.FixtureRequest) -> AnyMetric:
    return load_metric(request.param)


@pytest.fixture(params=["at the start", "after a window"])
def data(request: pytest.FixtureRequest, metric: AnyMetric) -> Any:
    """The metric before any draws, and one learnt from thirty."""
    gradient = fit(metric, draw(0))
    if request.param == "at the start" or not metric.is_adaptive:
        return metric.init(gradient, MASK)
    return learn(metric, *((fit(metric, draw(i)), fit(metric, draw(i + 10))) for i in range(5)))


def test_the_velocity_is_the_gradient_of_the_kinetic_energy(metric: AnyMetric, data: Any) -> None:
    """In the coordinates of the model momentum is r with p = A^T r: the energy is |A^T r|^2 / 2, the velocity A A^T r."""
    momentum = fit(metric, draw(1))

    def energy(r: Position) -> jax.Array:
        white = metric.whiten_gradient(data, r)
        return dot(white, white).sum() / 2

    velocity = metric.move(data, metric.whiten_gradient(data, momentum))
    assert_close(velocity, jax.grad(energy)(momentum))
    assert (dot(velocity, momentum) > 0).all()


def test_the_maps_of_momenta_and_gradients_are_transposes(metric: AnyMetric, data: Any) -> None:
    momentum, gradient = fit(metric, draw(1)), fit(metric, draw(2))
    np.testing.assert_allclose(
        dot(metric.move(data, momentum), gradient), dot(momentum, metric.whiten_gradient(data, gradient)), rtol=1e-9
    )


def test_whitening_inverts_moving(metric: AnyMetric, data: Any) -> None:
    momentum = fit(metric, draw(1))
    assert_close(metric.whiten_position(data, metric.move(data, momentum)), momentum)


def test_momenta_have_the_covariance_of_their_kinetic_energy(metric: AnyMetric) -> None:
    """|p|^2 / 2 is the energy of a standard normal p; padding has none."""
    num_chains = 2000
    like = fit(metric, draw(3, num_chains))
    drawn = metric.draw_momentum(jax.random.split(jax.random.key(1), num_chains), like, MASK)
    assert jax.tree.map(jnp.shape, drawn) == jax.tree.map(jnp.shape, like)
    p = np.concatenate([np.asarray(x).reshape(num_chains, -1) for x in jax.tree.leaves(drawn)], axis=1)
    living = p[:, : NUM_SHARED + NUM_LIVING]
    assert not p[:, NUM_SHARED + NUM_LIVING :].any()
    # Standard errors of means and covariances; those of variances are larger by sqrt(2).
    np.testing.assert_allclose(living.mean(axis=0), 0, atol=5 / num_chains**0.5)
    np.testing.assert_allclose(np.cov(living.T), np.eye(living.shape[1]), atol=5 * 2**0.5 / num_chains**0.5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_have_the_axes_and_the_dtype_that_are_declared(metric: AnyMetric, dtype: str) -> None:
    position = fit(metric, draw(4, dtype=dtype))
    first, estimate = metric.init(position, MASK), metric.init_estimate(position)
    assert jax.tree.leaves(first) or not metric.is_adaptive
    for arrays, axes in ((first, metric.data_axes()), (estimate, metric.estimate_axes())):

        def check(declared: Axes, part: Any) -> None:
            for array in jax.tree.leaves(part):
                assert len(declared.names) == array.ndim
                assert set(declared.names) <= {None, "entry", "spread"}, "one metric serves all chains"
                sizes = [n for n, name in zip(array.shape, declared.names, strict=True) if name == "entry"]
                assert set(sizes) <= {NUM_ENTRIES}

        jax.tree.map(check, axes, arrays, is_leaf=lambda x: isinstance(x, Axes))
    if not metric.is_adaptive:
        return
    learnt = metric.estimate(metric.update_estimate(estimate, position, position))
    describe = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype.name), tree)  # noqa: E731 - of a tree, twice
    assert describe(learnt) == describe(first)
    assert {x.dtype.name for x in jax.tree.leaves(metric.move(learnt, position))} == {dtype}


@pytest.mark.parametrize("part", Position._fields)
def test_a_part_without_coordinates_is_taken_or_refused_in_words(metric: AnyMetric, part: str) -> None:
    points = [draw(seed)._replace(**{part: None}) for seed in range(3)]
    mask = MASK._replace(**{part: None})
    try:
        data = metric.init(points[0], mask)
    except ConfigError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "kernel.metric" in said
        return
    if metric.is_adaptive:
        data = learn(metric, (points[1], points[2]), (points[2], points[1]))
    momentum = points[0]
    assert_close(metric.whiten_position(data, metric.move(data, momentum)), momentum)
    np.testing.assert_allclose(
        dot(metric.move(data, momentum), points[1]), dot(momentum, metric.whiten_gradient(data, points[1])), rtol=1e-9
    )


@pytest.mark.parametrize("gradient", [0.0, jnp.nan], ids=["constant", "no finite gradient"])
def test_a_window_that_teaches_nothing_gives_a_finite_metric(adaptive: AnyMetric, gradient: float) -> None:
    position = jax.tree.map(jnp.ones_like, fit(adaptive, draw(5)))
    window = position, jax.tree.map(lambda x: jnp.full_like(x, gradient), position)
    learnt = learn(adaptive, window, window)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(learnt))
    for moved in (adaptive.move(learnt, position), adaptive.whiten_position(learnt, position)):
        assert all(jnp.isfinite(x).all() and x.all() for x in jax.tree.leaves(moved))


def test_chains_without_a_finite_gradient_do_not_count(adaptive: AnyMetric) -> None:
    position, gradient = fit(adaptive, draw(6, MANY)), fit(adaptive, draw(7, MANY))
    spoilt = gradient._replace(shared=gradient.shared.at[2, 1].set(jnp.inf))
    rest = jnp.arange(MANY) != 2
    kept = [jax.tree.map(lambda x: x[rest], part) for part in (position, gradient)]
    assert_same_maps(adaptive, learn(adaptive, (position, spoilt)), learn(adaptive, (kept[0], kept[1])))


def test_an_estimate_depends_on_the_points_and_not_on_their_batches(adaptive: AnyMetric) -> None:
    position, gradient = fit(adaptive, draw(8, MANY)), fit(adaptive, draw(9, MANY))
    halves = [tuple(jax.tree.map(lambda x: x[i::2], part) for part in (position, gradient)) for i in range(2)]  # noqa: B023
    assert_same_maps(adaptive, learn(adaptive, (position, gradient)), learn(adaptive, *halves))  # type: ignore[arg-type]
