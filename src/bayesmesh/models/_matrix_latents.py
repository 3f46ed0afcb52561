"""Summaries of latents that are matrices with constant entries, as Cholesky factors of correlations are.

No chain can be judged by an entry that never changes, and no reader wants one of a factor: of a correlation the summaries
are the correlations themselves, each once, and of any other matrix the entries that vary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.models.base import Axis, Latents, Prior

CORRELATION, ENTRIES = "correlation", "entries"
_SAME = 1e-5


class Matrix(NamedTuple):
    """What is summarised of a square matrix.

    Attributes:
        kind: `CORRELATION` of a correlation matrix or its Cholesky factor, else `ENTRIES`.
        is_factor: whether it is such a factor.
        rows, columns: of the entries.
    """

    kind: str
    is_factor: bool
    rows: np.ndarray
    columns: np.ndarray

    @property
    def axis(self) -> Axis:
        """The axis of the entries, with their names."""
        return Axis("pair", tuple(f"{j} and {i}" for i, j in zip(self.rows, self.columns, strict=True)))


def find_matrices(shapes: Mapping[str, jax.ShapeDtypeStruct], prior: Callable[[], Prior]) -> dict[str, Matrix]:
    """Return latent -> what is summarised of it, for matrices with entries that are the same in all draws of the prior.

    Args:
        shapes: of the latents.
        prior: makes the prior, which is drawn from only where a latent is a square matrix of two rows or more.
    """
    square = [k for k, v in shapes.items() if len(v.shape) >= 2 and v.shape[-1] == v.shape[-2] > 1]
    if not square:
        return {}
    with jax.ensure_compile_time_eval():
        made = prior()
        draws = [made.sample(seed=jax.random.key(number)) for number in range(2)]
        pairs = {name: tuple(np.asarray(draw[name], np.float64) for draw in draws) for name in square}
    found = {name: _describe(*pair) for name, pair in pairs.items()}
    return {name: matrix for name, matrix in found.items() if matrix is not None}


def _describe(one: np.ndarray, other: np.ndarray) -> Matrix | None:
    """Return what is summarised of a matrix (..., d, d), given two draws; None where every entry varies."""
    varies = (one != other).reshape(-1, *one.shape[-2:]).any(axis=0)
    if varies.all():
        return None
    lower = np.tril_indices(len(varies), -1)
    covariance = one @ np.swapaxes(one, -1, -2)
    has_unit_rows = np.allclose(np.diagonal(covariance, axis1=-2, axis2=-1), 1, atol=_SAME)
    is_factor = bool(has_unit_rows and not np.triu(one, 1).any())
    is_correlation = np.allclose(np.diagonal(one, axis1=-2, axis2=-1), 1, atol=_SAME) and np.allclose(
        one, np.swapaxes(one, -1, -2), atol=_SAME
    )
    if is_factor or is_correlation:
        return Matrix(CORRELATION, is_factor, *lower)
    return Matrix(ENTRIES, False, *np.nonzero(varies))


def summarise(latents: Latents, matrices: Mapping[str, Matrix]) -> dict[str, jax.Array]:
    """Return latents as summaries, those of `find_matrices` as `NAME_correlation` or `NAME_entries`, (..., pair)."""
    found = {name: value for name, value in latents.items() if name not in matrices}
    for name, matrix in matrices.items():
        value = latents[name]
        if matrix.is_factor:
            value = value @ jnp.swapaxes(value, -1, -2)
        found[f"{name}_{matrix.kind}"] = value[..., matrix.rows, matrix.columns]
    return found


def matrix_axes(
    shapes: Mapping[str, jax.ShapeDtypeStruct], matrices: Mapping[str, Matrix]
) -> dict[str, tuple[Axis | None, ...]]:
    """Return the axes of these summaries, of which the last one names the two variables of each entry."""
    return {
        f"{name}_{matrix.kind}": (*[None] * (len(shapes[name].shape) - 2), matrix.axis)
        for name, matrix in matrices.items()
    }
