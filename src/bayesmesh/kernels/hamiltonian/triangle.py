"""An upper triangular matrix in blocks of columns that end at the diagonal, so that hardly any of its zeros are stored.

Products with it read half of the bytes and take half of the operations of those with a square matrix. For 7,850 rows and
few vectors, reading the matrix takes most of the time, and the order of the operands decides how fast it is read.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

Columns = tuple[jax.Array, ...]
"""Blocks (height, width): each holds the columns after those of the previous block, down to the diagonal."""

_WIDTH = 1024
"""Columns of a block. A matrix with no more columns is stored as one square."""


def split(matrix: Float[Array, "size size"]) -> Columns:
    """Return the blocks of an upper triangular matrix, the narrow one first; the others can be spread over devices.

    >>> [block.shape for block in split(jnp.eye(2500))]
    [(452, 452), (1476, 1024), (2500, 1024)]
    """
    starts = [0, *range(len(matrix) % _WIDTH or _WIDTH, len(matrix), _WIDTH)]
    return tuple(matrix[:end, start:end] for start, end in zip(starts, [*starts[1:], len(matrix)], strict=True))


def multiply(columns: Columns, vectors: Float[Array, "chain size"]) -> Float[Array, "chain size"]:
    """Return A x for every vector x."""
    # On a CPU the block must be the left operand: XLA copies the right one into another layout in every product.
    upright = vectors.T
    made = jnp.zeros_like(upright)
    for block in columns:
        height, width = block.shape
        made = made.at[:height].add(block @ upright[height - width : height])
    return made.T


def multiply_transposed(columns: Columns, vectors: Float[Array, "chain size"]) -> Float[Array, "chain size"]:
    """Return A^T x for every vector x."""
    made = jnp.zeros_like(vectors)
    for block in columns:
        height, width = block.shape
        # `concatenate` would exchange parts of columns that are spread over devices twice.
        made = made.at[:, height - width : height].set(vectors[:, :height] @ block)
    return made


def solve(columns: Columns, vectors: Float[Array, "chain size"]) -> Float[Array, "chain size"]:
    """Return A^-1 x for every vector x, by back substitution block by block."""
    left, solved = vectors.T, []
    for block in reversed(columns):
        height, width = block.shape
        first = height - width
        part = solve_triangular(block[first:], left[first:height], lower=False)
        # The rows of this part itself are not read again.
        left = left.at[:height].add(-(block @ part))
        solved.append(part)
    return jnp.concatenate(solved[::-1]).T
