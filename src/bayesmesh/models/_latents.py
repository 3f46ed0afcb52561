"""Latents of any model: alignment with rows, maps from unconstrained space and their volume, and summaries of matrices.

TFP's map to a simplex of K entries (`SoftmaxCentered`) uses the Jacobian of areas in the surrounding K dimensions, which is
sqrt(K) times that of the first K - 1 entries. A Dirichlet density is with respect to the latter. The constant between them
does not affect chains, but it does affect a marginal likelihood.

Convergence cannot be assessed on an entry of a matrix that never changes, and the entries of a Cholesky factor mean little to
a reader. The summaries of a correlation matrix are therefore the correlations themselves, each once. Those of any other
matrix are the entries that vary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Axis, Bijector, Latents, Model, Prior

CORRELATION, ENTRIES = "correlation", "entries"
NUM_DRAWS = 8
"""Prior draws used to find constant entries: real numbers that vary are not equal in all of them."""

_SAME = 1e-5


def align_local(model: Model, draw: Latents, entries: jax.Array | np.ndarray) -> dict[str, jax.Array]:
    """Return the latents of a draw, with local ones aligned with rows.

    Args:
        model: names its local latents and the axis of their entries.
        draw: latents of one draw, local ones with all entries.
        entries: (row,), entry to which each row belongs.
    """
    return {**draw, **{k: jnp.take(draw[k], entries, axis=axis) for k, axis in model.local_latents.items()}}


class Maps:
    """A bijector of dicts of latents, built from one TFP bijector for each latent.

    Args:
        bijectors: latent -> its map.
    """

    def __init__(self, bijectors: Mapping[str, Any]) -> None:
        self._bijectors = dict(bijectors)

    def forward(self, x: Latents) -> dict[str, Array]:
        """Return latents from unconstrained values."""
        return {k: self._bijectors[k].forward(v) for k, v in x.items()}

    def inverse(self, y: Latents) -> dict[str, Array]:
        """Return unconstrained values from latents."""
        return {k: self._bijectors[k].inverse(v) for k, v in y.items()}

    def forward_log_det_jacobian(self, x: Latents) -> Float[Array, ""]:
        """Return the log determinant of the Jacobian of `forward`, with all axes of a latent as event axes."""
        terms = [self._bijectors[k].forward_log_det_jacobian(v, event_ndims=jnp.ndim(v)) for k, v in x.items()]
        return sum(terms[1:], start=jnp.asarray(terms[0], next(iter(x.values())).dtype))


class FunctionMaps(NamedTuple):
    """A bijector of dicts of latents, given by its methods."""

    forward: Callable[[Latents], Latents]
    inverse: Callable[[Latents], Latents]
    forward_log_det_jacobian: Callable[[Latents], Array]


class FunctionPrior:
    """A prior given by functions: of a key, a draw; and of latents, their log density.

    Args:
        draw: the same key gives the same draw.
        log_prob: log density, in nats.
        maps: the map from unconstrained space.
    """

    def __init__(
        self, draw: Callable[[PRNGKeyArray], Latents], log_prob: Callable[[Latents], Array], maps: Bijector
    ) -> None:
        self._draw, self.log_prob, self._maps = draw, log_prob, maps

    def sample(self, *, seed: PRNGKeyArray) -> Latents:
        """Return a draw."""
        return self._draw(seed)

    def experimental_default_event_space_bijector(self) -> Bijector:
        """Return the map from unconstrained space."""
        return self._maps


def bijector_of(prior: Prior) -> Bijector:
    """Return a prior's own bijector.

    TFP's joint distributions sample themselves to learn how many axes parts that depend on each other have. Outside a
    program, each of about 25 operations of its samplers would be compiled, 0.7 s in all; here it samples while being
    traced. TFP's bijector rebuilds the parts from the values that it maps: only the shapes of those drawn here are read.
    """
    if not type(prior).__module__.startswith("tensorflow_probability."):
        return prior.experimental_default_event_space_bijector()
    made: list[Bijector] = []
    jax.eval_shape(lambda: made.append(prior.experimental_default_event_space_bijector()))
    return made[0]


def log_volume(bijector: Any, free: Mapping[str, Any]) -> float:
    """Return the correction, in nats, that turns a prior's log Jacobian into that of the free entries of its latents.

    Args:
        bijector: map from unconstrained values to latents, which maps each latent separately.
        free: latent -> shape and dtype of its unconstrained values.

    Returns:
        A constant; 0 if none of the latents is a simplex.
    """
    at = {name: jnp.zeros(each.shape, jnp.float64) for name, each in free.items()}
    values = bijector.forward(at)
    if not any(_is_simplex(values[name], at[name].shape) for name in free):
        return 0.0
    exact = sum(log_determinant(bijector, at, name) for name in free)
    return exact - float(bijector.forward_log_det_jacobian(at))


def _is_simplex(value: jax.Array, free: tuple[int, ...]) -> bool:
    """Return whether rows of a latent are probabilities, of which all but one are free; those of a zero-sum latent are not."""
    if not (value.ndim == len(free) > 0 and value.shape[:-1] == free[:-1] and value.shape[-1] == free[-1] + 1):
        return False
    return bool((value > 0).all() and jnp.allclose(value.sum(axis=-1), 1))


def log_determinant(bijector: Any, at: Latents, name: str) -> float:
    """Return the log Jacobian determinant of a latent's free entries with respect to its unconstrained values."""
    shape = at[name].shape
    size, is_simplex = math.prod(shape), _is_simplex(bijector.forward(at)[name], shape)

    def entries(own: jax.Array) -> jax.Array:
        found = bijector.forward({**at, name: own})[name]
        if is_simplex:
            found = found[..., :-1]
        elif found.ndim > len(shape) > 0:
            order = found.shape[-1]
            found = found[(..., *np.tril_indices(order, 0 if shape[-1] == order * (order + 1) // 2 else -1))]
        return found.ravel()

    matrix = np.asarray(jax.jit(jax.jacfwd(entries))(at[name])).reshape(-1, size)
    if len(matrix) == size:
        return float(np.linalg.slogdet(matrix)[1])
    # Zero-sum latents: their density is with respect to lengths and areas in the surrounding space.
    return float(np.linalg.slogdet(matrix.T @ matrix)[1]) / 2


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


class Matrices(NamedTuple):
    """The summaries of the latents of a model that are matrices; from `find_matrices`.

    Attributes:
        shapes: latent -> its shape.
        found: latent -> its summary.
    """

    shapes: Mapping[str, jax.ShapeDtypeStruct] = {}
    found: Mapping[str, MatrixSummary] = {}

    def summaries(self, latents: Latents) -> dict[str, jax.Array]:
        """Return latents as summaries, matrices as `NAME_correlation` or `NAME_entries`, (..., pair).

        A matrix without an entry that varies is left out.
        """
        summaries = {name: value for name, value in latents.items() if name not in self.found}
        for name, matrix in self.found.items():
            value = latents[name]
            if matrix.is_factor:
                value = value @ jnp.swapaxes(value, -1, -2)
            if matrix.rows.size:
                summaries[f"{name}_{matrix.kind}"] = value[..., matrix.rows, matrix.columns]
        return summaries

    def axes(self, named: Mapping[str, tuple[Axis | None, ...]]) -> dict[str, tuple[Axis | None, ...]]:
        """Return the axes of these summaries, given those of latents; the last axis names the two variables of each entry."""
        return {
            f"{name}_{matrix.kind}": (
                *(named.get(name) or [None] * len(self.shapes[name].shape))[:-2],
                matrix.axis(named.get(name, ())),
            )
            for name, matrix in self.found.items()
            if matrix.rows.size
        }


def find_matrices(shapes: Mapping[str, jax.ShapeDtypeStruct], prior: Callable[[], Prior]) -> Matrices:
    """Return the summaries of matrices with entries that are the same in all draws of the prior.

    Args:
        shapes: shapes of the latents.
        prior: returns the prior, which is sampled only where a latent is a square matrix with at least two rows.

    Raises:
        ConfigError: the summary of a matrix has the name of a latent.
    """
    square = [k for k, v in shapes.items() if len(v.shape) >= 2 and v.shape[-1] == v.shape[-2] > 1]
    if not square:
        return Matrices(shapes, {})
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
    return Matrices(shapes, found)


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
