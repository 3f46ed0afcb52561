"""A triangle in blocks of columns is the same matrix as the square that it was split from."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from bayesmesh.kernels.hamiltonian import triangle

NUM_CHAINS = 3


@pytest.mark.parametrize("size", [3, 8, 11], ids=["one block", "whole blocks", "a narrow last block"])
def test_products_and_solutions_are_those_of_the_square(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triangle, "_WIDTH", 4)
    generator = np.random.default_rng(size)
    square = np.triu(generator.standard_normal((size, size))) + 3 * np.eye(size)
    vectors = generator.standard_normal((NUM_CHAINS, size))

    @jax.jit
    def run(square, vectors):
        columns = triangle.split(square)
        maps = triangle.multiply, triangle.multiply_transposed, triangle.solve
        return columns, [of(columns, vectors) for of in maps]

    columns, (moved, white, solved) = run(square, vectors)
    assert [len(block) for block in columns] == [*range(4, size, 4), size]
    np.testing.assert_allclose(moved, vectors @ square.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(white, vectors @ square, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(solved, np.linalg.solve(square, vectors.T).T, rtol=1e-9)
