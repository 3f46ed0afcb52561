"""Small matrices, one for each level of a group: Cholesky factors, and linear systems with them."""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

Levels = Float[Array, "level effect"]

_MOST_UNROLLED = 6
"""Number of effects up to which the factorisation of all levels is written out: one LAPACK call per level takes longer."""


def cholesky(a: Float[Array, "level q q"]) -> Float[Array, "level q q"]:
    """Return the lower Cholesky factors."""
    size = a.shape[1]
    if size > _MOST_UNROLLED:
        return jnp.linalg.cholesky(a)
    rows: list[list[Array]] = []
    for i in range(size):
        row: list[Array] = []
        for j in range(i + 1):
            left = a[:, i, j] - sum((row[k] * (row if i == j else rows[j])[k] for k in range(j)), start=0.0)
            row.append(jnp.sqrt(left) if i == j else left / rows[j][j])
        rows.append(row)
    zero = jnp.zeros_like(a[:, 0, 0])
    return jnp.stack([jnp.stack(row + [zero] * (size - len(row)), axis=1) for row in rows], axis=1)


def solve_lower(factor: Float[Array, "level q q"], b: Levels) -> Levels:
    """Return factor^-1 b for every level."""
    if factor.shape[1] > _MOST_UNROLLED:
        return solve_triangular(factor, b[:, :, None], lower=True)[:, :, 0]
    found: list[Array] = []
    for i in range(factor.shape[1]):
        left = b[:, i] - sum((factor[:, i, k] * found[k] for k in range(i)), start=0.0)
        found.append(left / factor[:, i, i])
    return jnp.stack(found, axis=1)


def solve_upper(factor: Float[Array, "level q q"], b: Levels) -> Levels:
    """Return factor^-T b for every level, with lower triangular factors."""
    if factor.shape[1] > _MOST_UNROLLED:
        return solve_triangular(factor, b[:, :, None], lower=True, trans=1)[:, :, 0]
    found: dict[int, Array] = {}
    for i in reversed(range(factor.shape[1])):
        left = b[:, i] - sum((factor[:, k, i] * each for k, each in found.items()), start=0.0)
        found[i] = left / factor[:, i, i]
    return jnp.stack([found[i] for i in range(factor.shape[1])], axis=1)


def inverse_of(factor: Float[Array, "level q q"]) -> Float[Array, "level q q"]:
    """Return the inverses of lower triangular factors."""
    size = factor.shape[1]
    identity = jnp.broadcast_to(jnp.eye(size, dtype=factor.dtype)[None], factor.shape)
    if size > _MOST_UNROLLED:
        return solve_triangular(factor, identity, lower=True)
    return jnp.stack([solve_lower(factor, identity[:, :, i]) for i in range(size)], axis=2)
