"""Small matrices, one for each level of a group: products, Cholesky factors, and linear systems with them.

Of few effects, a matrix is written out in entries, each an array over the levels: XLA fuses formulas of these into one loop over
levels, three to six times as fast as operations on arrays (level, q, q). Of many effects, it is such an array, and LAPACK is called for
each level. Vectors are columns. Both kinds have the operators ``+ - * / @``; the right operand is of the same kind or, for
``* /``, a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

_MOST_WRITTEN_OUT = 6
"""Number of effects up to which matrices are written out in entries."""


class Entries:
    """A matrix of each level, in entries.

    Args:
        rows: the entries by row, (level,) each, or numbers. Operators repeat a single row or column, as those of arrays do.
    """

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self.rows = rows
        self.shape = (len(rows), len(rows[0]))

    def __getitem__(self, at: tuple[int, int]) -> Any:
        return self.rows[min(at[0], self.shape[0] - 1)][min(at[1], self.shape[1] - 1)]

    def _with(self, combine: Callable[[Any, Any], Any], other: Any) -> Entries:
        if not isinstance(other, Entries):
            return Entries([[combine(each, other) for each in row] for row in self.rows])
        height, width = np.broadcast_shapes(self.shape, other.shape)
        return Entries([[combine(self[i, j], other[i, j]) for j in range(width)] for i in range(height)])

    def __add__(self, other: Any) -> Entries:
        return self._with(operator.add, other)

    def __sub__(self, other: Any) -> Entries:
        return self._with(operator.sub, other)

    def __mul__(self, other: Any) -> Entries:
        return self._with(operator.mul, other)

    def __truediv__(self, other: Any) -> Entries:
        return self._with(operator.truediv, other)

    def __matmul__(self, other: Entries) -> Entries:
        columns = turned(other).rows
        return Entries([[_dot(row, column) for column in columns] for row in self.rows])


def _dot(x: Sequence[Any], y: Sequence[Any]) -> Any:
    return sum(a * b for a, b in zip(x, y, strict=True))


def entries(x: Float[Array, "*level q p"], num_effects: int) -> Any:
    """Return a matrix of each level, or one of all levels, as the functions of this module take them.

    Args:
        x: the matrix.
        num_effects: number of effects of a level, which decides on the kind.
    """
    if num_effects > _MOST_WRITTEN_OUT:
        return x
    return Entries([[x[..., i, j] for j in range(x.shape[-1])] for i in range(x.shape[-2])])


def joined(x: Any) -> Float[Array, "level q p"]:
    """Return a matrix of each level as an array."""
    if not isinstance(x, Entries):
        return x
    return jnp.stack([jnp.stack(row, axis=-1) for row in x.rows], axis=-2)


def turned(x: Any) -> Any:
    """Return the transpose."""
    return Entries([*zip(*x.rows, strict=True)]) if isinstance(x, Entries) else x.swapaxes(-1, -2)


def times(scale: Any, x: Any) -> Any:
    """Return a matrix or, as a column, the diagonal of one, times x."""
    return scale * x if scale.shape[-1] == 1 else scale @ x


def total(x: Any) -> Float[Array, " level"]:
    """Return the sum of all entries of each level."""
    return sum(each for row in x.rows for each in row) if isinstance(x, Entries) else x.sum((-2, -1))


def plus_identity(x: Any) -> Any:
    """Return the matrix plus the identity."""
    size = x.shape[-1]
    if not isinstance(x, Entries):
        return x + jnp.eye(size, dtype=x.dtype)
    return Entries([[x[i, j] + 1 if i == j else x[i, j] for j in range(size)] for i in range(size)])


def cholesky(a: Any) -> Any:
    """Return the lower Cholesky factor."""
    if not isinstance(a, Entries):
        return jnp.linalg.cholesky(a)
    rows: list[list[Any]] = []
    for i in range(len(a.rows)):
        rows.append([])
        for j in range(i):
            rows[i].append((a[i, j] - _dot(rows[i], rows[j][:j])) / rows[j][j])
        rows[i].append(jnp.sqrt(a[i, i] - _dot(rows[i], rows[i])))
    return _lower(rows)


def _lower(rows: Sequence[Sequence[Any]]) -> Entries:
    """Return a lower triangular matrix from its rows up to the diagonal."""
    return Entries([[*row, *[0.0] * (len(rows) - len(row))] for row in rows])


def log_det(factor: Any) -> Float[Array, " level"]:
    """Return the log of the product of the diagonal."""
    if not isinstance(factor, Entries):
        return jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    return sum(jnp.log(row[i]) for i, row in enumerate(factor.rows))  # type: ignore[return-value]


def solve_lower(factor: Any, b: Any) -> Any:
    """Return factor^-1 b, for a column b."""
    if not isinstance(b, Entries):
        return solve_triangular(factor, b, lower=True)
    found: list[Any] = []
    for i, row in enumerate(factor.rows):
        found.append((b[i, 0] - _dot(row[:i], found)) / row[i])
    return Entries([[each] for each in found])


def solve_upper(factor: Any, b: Any) -> Any:
    """Return factor^-T b, for a lower triangular factor and a column b."""
    if not isinstance(b, Entries):
        return solve_triangular(factor, b, lower=True, trans=1)
    found: list[Any] = []
    for i, column in reversed([*enumerate(turned(factor).rows)]):
        found.insert(0, (b[i, 0] - _dot(column[i + 1 :], found)) / column[i])
    return Entries([[each] for each in found])


def factor_of(across: Any, gram: Any) -> Any:
    """Return the Cholesky factor of 1 + S^T G S.

    Args:
        across: S^T, or its diagonal as a column.
        gram: G, symmetric.
    """
    return cholesky(plus_identity(times(across, turned(times(across, gram)))))


def solve(factor: Any, b: Any) -> Any:
    """Return (factor factor^T)^-1 b, for a lower triangular factor and a column b."""
    return solve_upper(factor, solve_lower(factor, b))


def inverse_of(factor: Any) -> Any:
    """Return the inverse of a lower triangular factor."""
    size = factor.shape[-1]
    if not isinstance(factor, Entries):
        identity = jnp.eye(size, dtype=factor.dtype)
        return solve_triangular(factor, jnp.broadcast_to(identity, factor.shape), lower=True)
    rows: list[list[Any]] = []
    for i, row in enumerate(factor.rows):
        rows.append([-_dot(row[j:i], [rows[k][j] for k in range(j, i)]) / row[i] for j in range(i)])
        rows[i].append(1 / row[i])
    return _lower(rows)
