"""Summaries of latents that are matrices with constant entries, such as Cholesky factors of correlation matrices.

Convergence cannot be assessed on an entry that never changes, and the entries of a Cholesky factor mean little to a
reader. The summaries of a correlation matrix are therefore the correlations themselves, each once. Those of any other
matrix are the entries that vary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Axis, Latents, Prior

CORRELATION, ENTRIES = "correlation", "entries"
NUM_DRAWS = 8
"""Prior draws used to find constant entries: real numbers that vary are not equal in all of them."""

_SAME = 1e-5

Shapes = Mapping[str, jax.ShapeDtypeStruct]


class MatrixSummary(NamedTuple):
    """The summary of a square matrix.

    Attributes:
        kind: `CORRELATION` for a correlation matrix or its Cholesky factor, else `ENTRIES`.
        is_factor: whether it is such a factor.
        rows, columns: indices of the entries.
    """

    kind: str
    is_factor: bool
    rows: np.ndarray
    columns: np.ndarray

    def axis(self, axes: Sequence[Axis | None]) -> Axis:
        """Return the axis of the entries, with the names of their two variables.

        Args:
            axes: axes of the latent, if it has any.
        """
        own = axes[-1] if axes else None
        size = max(self.rows.max(), self.columns.max()) + 1
        names = own.labels if own is not None and own.labels else [str(number) for number in range(size)]
        return Axis("pair", tuple(f"{names[j]} and {names[i]}" for i, j in zip(self.rows, self.columns, strict=True)))


def find_matrices(shapes: Shapes, prior: Callable[[], Prior]) -> dict[str, MatrixSummary]:
    """Return latent -> its summary, for matrices with entries that are the same in all draws of the prior.

    Args:
        shapes: shapes of the latents.
        prior: returns the prior, which is sampled only where a latent is a square matrix with at least two rows.

    Raises:
        ConfigError: the summary of a matrix has the name of a latent.
    """
    square = [k for k, v in shapes.items() if len(v.shape) >= 2 and v.shape[-1] == v.shape[-2] > 1]
    if not square:
        return {}
    with jax.ensure_compile_time_eval():
        made = prior()
        draws = [made.sample(seed=jax.random.key(number)) for number in range(NUM_DRAWS)]
        values = {name: np.stack([np.asarray(draw[name], np.float64) for draw in draws]) for name in square}
    found = {name: matrix for name in square if (matrix := _describe(values[name])) is not None}
    for name, matrix in found.items():
        if f"{name}_{matrix.kind}" in shapes:
            raise ConfigError(
                f"the latent '{name}_{matrix.kind}' has the name of a summary of the matrix '{name}'",
                "give the latent another name",
            )
    return found


def _describe(draws: np.ndarray) -> MatrixSummary | None:
    """Return the summary of a matrix, given draws (draw, ..., d, d); None where every entry varies."""
    varies = _varying(draws)
    if varies.all():
        return None
    transposed = np.swapaxes(draws, -1, -2)
    is_factor = _has_unit_diagonal(draws @ transposed) and not np.triu(draws, 1).any()
    if is_factor or (_has_unit_diagonal(draws) and np.allclose(draws, transposed, atol=_SAME)):
        correlations = draws @ transposed if is_factor else draws
        return MatrixSummary(CORRELATION, is_factor, *np.nonzero(np.tril(_varying(correlations), -1)))
    return MatrixSummary(ENTRIES, False, *np.nonzero(varies))


def _varying(draws: np.ndarray) -> np.ndarray:
    """Return which entries (d, d) differ between draws (draw, ..., d, d), in any matrix of a batch."""
    return (draws != draws[:1]).reshape(-1, *draws.shape[-2:]).any(axis=0)


def _has_unit_diagonal(draws: np.ndarray) -> bool:
    return bool(np.allclose(np.diagonal(draws, axis1=-2, axis2=-1), 1, atol=_SAME))


def summarise(latents: Latents, matrices: Mapping[str, MatrixSummary]) -> dict[str, jax.Array]:
    """Return latents as summaries, those of `find_matrices` as `NAME_correlation` or `NAME_entries`, (..., pair).

    A matrix without an entry that varies is left out.
    """
    found = {name: value for name, value in latents.items() if name not in matrices}
    for name, matrix in matrices.items():
        value = latents[name]
        if matrix.is_factor:
            value = value @ jnp.swapaxes(value, -1, -2)
        if matrix.rows.size:
            found[f"{name}_{matrix.kind}"] = value[..., matrix.rows, matrix.columns]
    return found


def matrix_axes(
    shapes: Shapes, matrices: Mapping[str, MatrixSummary], axes: Mapping[str, tuple[Axis | None, ...]]
) -> dict[str, tuple[Axis | None, ...]]:
    """Return the axes of these summaries; the last axis names the two variables of each entry.

    Args:
        shapes: shapes of the latents.
        matrices: from `find_matrices`.
        axes: named axes of the latents.
    """
    return {
        f"{name}_{matrix.kind}": (
            *(axes.get(name) or [None] * len(shapes[name].shape))[:-2],
            matrix.axis(axes.get(name, ())),
        )
        for name, matrix in matrices.items()
        if matrix.rows.size
    }
