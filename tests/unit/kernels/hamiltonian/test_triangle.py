"""A triangle in blocks of columns is the same matrix as the square that it was split from."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from bayesmesh.kernels.base import Axes
from bayesmesh.kernels.hamiltonian import triangle as hamiltonian_triangle
from bayesmesh.sampling.program.values import place

NUM_CHAINS = 3


@pytest.mark.parametrize("size", [3, 8, 11], ids=["one block", "whole blocks", "a narrow first block"])
def test_products_and_solutions_are_those_of_the_square_on_one_device_and_on_two(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hamiltonian_triangle, "_WIDTH", 4)
    generator = np.random.default_rng(size)
    square = np.triu(generator.standard_normal((size, size))) + 3 * np.eye(size)
    vectors = generator.standard_normal((NUM_CHAINS, size))

    @jax.jit
    def products(columns, vectors):
        maps = hamiltonian_triangle.multiply, hamiltonian_triangle.multiply_transposed, hamiltonian_triangle.solve
        return [of(columns, vectors) for of in maps]

    @jax.jit
    def run(square, vectors):
        columns = hamiltonian_triangle.split(square)
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
