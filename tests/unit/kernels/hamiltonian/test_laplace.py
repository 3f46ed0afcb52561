"""The normal at a mode of functions whose mode and curvature are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bayesmesh.kernels.base import Axes, Position
from bayesmesh.kernels.hamiltonian import laplace
from bayesmesh.kernels.hamiltonian.laplace import Curvature, fit_normal, measure_curvature
from bayesmesh.kernels.targets import FunctionTarget
from bayesmesh.sampling.program.values import place

SIZE = 7
ROOT = np.random.default_rng(0).standard_normal((SIZE, SIZE)) * np.geomspace(0.1, 10, SIZE)
PRECISION = ROOT.T @ ROOT + 0.1 * np.diag(np.geomspace(0.1, 10, SIZE) ** 2)
MODE = np.arange(1.0, SIZE + 1)


def normal(precision: np.ndarray = PRECISION) -> FunctionTarget:
    return FunctionTarget(lambda q: -0.5 * (q - MODE) @ jnp.asarray(precision, q.dtype) @ (q - MODE))


def at(values: Any, dtype: str = "float64") -> Position:
    return Position(jnp.asarray(values, dtype)[None], None)


def covariance(curvature: Curvature, size: int = SIZE) -> np.ndarray:
    moved = curvature.move(Position(jnp.eye(size), None)).shared
    return np.asarray(moved, np.float64).T @ np.asarray(moved, np.float64)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-3), ("float64", 1e-9)])
def test_of_a_normal_the_mode_and_the_covariance_are_found(dtype: str, rtol: float) -> None:
    fitted = jax.jit(lambda q: fit_normal(normal(), q, []))(at(np.zeros(SIZE), dtype))
    assert {x.dtype.name for x in jax.tree.leaves((fitted.mean, fitted.curvature.dense))} == {dtype}
    np.testing.assert_allclose(fitted.mean.shared[0], MODE, rtol=rtol)
    found = covariance(fitted.curvature) @ PRECISION
    np.testing.assert_allclose(found, np.eye(SIZE), atol=100 * rtol)


def test_newton_steps_end_at_the_mode_of_another_function() -> None:
    """A Poisson log likelihood of log rates, from a point with a third of the curvature."""
    counts = jnp.asarray([3.0, 20.0, 100.0])
    target = FunctionTarget(lambda q: jnp.sum(counts * q - jnp.exp(q)))
    fitted = jax.jit(lambda q: fit_normal(target, q, []))(at(np.log(counts) - 0.2))
    np.testing.assert_allclose(jnp.exp(fitted.mean.shared[0]), counts, rtol=1e-3)


def test_steps_that_overshoot_are_shortened_until_they_end_at_the_mode() -> None:
    """From a point with a tenth of the curvature of the mode, where a whole step loses density."""
    target = FunctionTarget(lambda q: -jnp.sum(jnp.sqrt(1 + 4 * (q - 1) ** 2)))
    start = at([3.0, -1.5])
    fitted = jax.jit(lambda q: fit_normal(target, q, []))(start)
    whole = start.shared + covariance(fitted.curvature, 2) @ target.log_density(start).gradient.shared[0]
    before, overshot = (target.log_density(Position(q, None)).log_likelihood for q in (start.shared, whole))
    assert overshot < before
    np.testing.assert_allclose(fitted.mean.shared[0], 1, atol=0.2)


def test_a_step_that_loses_density_is_not_taken() -> None:
    """Between the modes of a double well the curvature points away from both."""
    target = FunctionTarget(lambda q: -jnp.sum((q**2 - 1) ** 2))
    start = at([0.3, -0.3])
    fitted = jax.jit(lambda q: fit_normal(target, q, []))(start)
    before, after = (target.log_density(q).log_likelihood for q in (start, fitted.mean))
    assert (after >= before).all()
    assert np.isfinite(covariance(fitted.curvature, 2)).all()


def test_what_has_no_curvature_has_variance_1() -> None:
    target = FunctionTarget(lambda q: -2 * q[0] ** 2 + 0 * q[1])
    found = covariance(measure_curvature(target, at([0.0, 0.0]), []), 2)
    np.testing.assert_allclose(found, np.diag([0.25, 1.0]), rtol=1e-12)


def test_blocks_of_two_axes_are_kept_apart_from_the_rest() -> None:
    """Units of two and of three coordinates; within the dense rest and within each unit the precision is exact."""
    pairs, triple = np.asarray([[0, 3], [5, 1]]), np.asarray([[2, 6, 7]])
    groups = [*pairs, *triple, np.asarray([4, 8])]
    generator = np.random.default_rng(1)
    precision = np.zeros((9, 9))
    for group in groups:
        root = generator.standard_normal((len(group), len(group)))
        precision[np.ix_(group, group)] = root @ root.T + np.eye(len(group))
    # Between a unit and the rest there may be more, which the blocks do not keep.
    precision[0, 4] = precision[4, 0] = 0.1
    target = FunctionTarget(lambda q: -0.5 * q @ precision @ q)
    curvature = jax.jit(lambda q: measure_curvature(target, q, [pairs, triple]))(at(np.ones(9)))
    expected = np.zeros((9, 9))
    for group in groups:
        expected[np.ix_(group, group)] = np.linalg.inv(precision[np.ix_(group, group)])
    np.testing.assert_allclose(covariance(curvature, 9), expected, atol=1e-12)
    assert curvature.units is not None
    assert curvature.units.shape == (3, 3)


def test_maps_are_transposes_and_inverses() -> None:
    curvature = measure_curvature(normal(), at(MODE), [np.asarray([[0, 2], [4, 1]])])
    p, g = (Position(jnp.asarray(np.random.default_rng(i).standard_normal((3, SIZE))), None) for i in (2, 3))
    moved, white = curvature.move(p), curvature.move(g, is_transposed=True)
    np.testing.assert_allclose((moved.shared * g.shared).sum(1), (p.shared * white.shared).sum(1), rtol=1e-12)
    np.testing.assert_allclose(curvature.solve(moved).shared, p.shared, rtol=1e-9)


NUM_CHAINS = 3


@pytest.mark.parametrize("size", [3, 8, 11], ids=["one block", "whole blocks", "a narrow first block"])
def test_products_and_solutions_are_those_of_the_square_on_one_device_and_on_two(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laplace, "_WIDTH", 4)
    generator = np.random.default_rng(size)
    square = np.triu(generator.standard_normal((size, size))) + 3 * np.eye(size)
    vectors = generator.standard_normal((NUM_CHAINS, size))

    @jax.jit
    def products(columns, vectors):
        maps = laplace.multiply, laplace.multiply_transposed, laplace.solve
        return [of(columns, vectors) for of in maps]

    @jax.jit
    def run(square, vectors):
        columns = laplace.split_triangle(square)
        return columns, products(columns, vectors)

    blocks, made = run(square, vectors)
    assert [len(block) for block in blocks] == [*range(size % 4 or 4, size, 4), size]
    mesh = jax.make_mesh((1, 2), ("chain", "data"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:2])
    spread = jax.device_put(blocks, place(mesh, blocks, (Axes(None, "spread"),) * len(blocks)))
    assert spread[-1].sharding.is_fully_replicated == (size < 4)
    for moved, white, solved in (made, products(spread, vectors)):
        np.testing.assert_allclose(moved, vectors @ square.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(white, vectors @ square, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(solved, np.linalg.solve(square, vectors.T).T, rtol=1e-9)
