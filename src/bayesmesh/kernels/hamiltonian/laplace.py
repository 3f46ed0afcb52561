"""The Laplace approximation at a mode: Newton steps, and the curvature there in the blocks that a metric can store.

Columns of the Hessian are Hessian-vector products: gradients differentiated along a direction, many directions at a time.
A block-diagonal Hessian needs only as many directions as its largest block has coordinates, because one direction may have
a component in every block (Curtis, Powell and Reid 1974, "On the estimation of sparse Jacobian matrices").

A large triangular factor is stored in blocks of columns that end at the diagonal, so that hardly any of its zeros are stored.
Products with it read half of the bytes and take half of the operations of those with a square matrix. For 7,850 rows and few
vectors, reading the matrix takes most of the time, and the order of the operands decides how fast it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Density, Position, Target, map_parts

MOST_COORDINATES = 10_000
"""Most shared coordinates outside declared blocks whose covariance is stored: 220 MB in float32."""

_NEWTON_STEPS = 12
"""Newton steps with one curvature, each at the cost of a gradient of one chain; one that overshoots is tried at a quarter."""

_TANGENTS = 64
"""Directions that are differentiated at a time."""

_WIDTH = 1024
"""Columns of a block. A matrix with no more columns is stored as one square."""

Columns = tuple[jax.Array, ...]
"""Blocks (height, width): each holds the columns after those of the previous block, down to the diagonal."""

Once = Callable[[Callable[[jax.Array], Columns], jax.Array], Columns]
"""Calls a function with an array."""


def call_here(function: Callable[[jax.Array], Columns], argument: jax.Array) -> Columns:
    """Apply a function to an array, on every device."""
    return function(argument)


class Curvature(NamedTuple):
    """Upper triangular factors A of the covariance A A^T of a normal; a part without coordinates is None.

    Attributes:
        rest: (R,) int32, shared coordinates outside blocks. dense: their factor, (R, R) in blocks of columns.
        units: (unit, width) int32, shared coordinates of each unit of the declared axes; S where a unit has fewer.
        blocks: (unit, width, width).
        local: (entry, k, k).
    """

    rest: jax.Array | None
    dense: Columns | None
    units: jax.Array | None
    blocks: jax.Array | None
    local: jax.Array | None

    def move(self, momentum: Position, *, is_transposed: bool = False) -> Position:
        """Return A p, or A^T p, for positions (chain, ...)."""

        def times(root: jax.Array, x: jax.Array) -> jax.Array:
            return jnp.einsum("...ji,c...j->c...i" if is_transposed else "...ij,c...j->c...i", root, x)

        return self._map(multiply_transposed if is_transposed else multiply, times, momentum)

    def solve(self, position: Position) -> Position:
        """Return A^-1 q for positions (chain, ...)."""
        return self._map(solve, lambda root, x: jax.vmap(lambda q: _solve(root, q))(x), position)

    def _map(
        self,
        dense: Callable[[Columns, jax.Array], jax.Array],
        blocks: Callable[[jax.Array, jax.Array], jax.Array],
        position: Position,
    ) -> Position:
        """Apply the dense factor to vectors (chain, size), and the others to vectors (chain, unit, width)."""
        shared, local = position
        if shared is not None:
            of, shared = shared, jnp.zeros_like(shared)
            if self.rest is not None and self.dense is not None:
                shared = shared.at[:, self.rest].set(dense(self.dense, of[:, self.rest]))
            if self.units is not None and self.blocks is not None:
                part = jnp.take(of, self.units, axis=1, mode="fill", fill_value=0)
                shared = shared.at[:, self.units].set(blocks(self.blocks, part), mode="drop")
        return Position(shared, None if local is None or self.local is None else blocks(self.local, local))


class NormalAtMode(NamedTuple):
    """A normal: its mean, as one chain (1, ...), and the factors of its covariance."""

    mean: Position
    curvature: Curvature


def normal_of(target: Target, needs: str, otherwise: str) -> NormalAtMode:
    """Return the normal at the mode that a target has measured.

    Args:
        target: the log density.
        needs: what needs it, for the message.
        otherwise: what to do without a mode.

    Raises:
        ConfigError: the target has none, because the chains start elsewhere.
    """
    found: NormalAtMode | None = getattr(target, "normal", None)
    if found is None:
        raise ConfigError(
            f"{needs} needs the mode, and the chains start elsewhere",
            f"write\n    sampling:\n      initial:\n        method: laplace\n  or {otherwise}",
        )
    return found


def fit_normal(
    target: Target,
    start: Position,
    units: Sequence[np.ndarray],
    expansion: Target | None = None,
    once: Once = call_here,
) -> NormalAtMode:
    """Return the normal with the curvature at `start`, centred at the mode that Newton steps with this curvature reach.

    Args:
        target: the log density.
        start: one chain (1, ...), near a mode.
        units: of each declared axis, (unit, width) shared coordinates that belong to one unit of it.
        expansion: a target with the same Hessian at `start`, where that is cheaper to differentiate.
        once: as for `measure_curvature`.

    Raises:
        ConfigError: more than `MOST_COORDINATES` shared coordinates are outside of the units.
    """
    curvature = measure_curvature(target if expansion is None else expansion, start, units, once)

    def climb(_: jax.Array, carry: tuple[Position, Density, jax.Array]) -> tuple[Position, Density, jax.Array]:
        at, density, length = carry
        step = curvature.move(curvature.move(density.gradient, is_transposed=True))
        there = map_parts(lambda q, d: q + (length * d).astype(q.dtype), at, step)
        after = target.log_density(there)
        # Reject a step away from the mode, or out of the support.
        climbs = ((after.log_prior + after.log_likelihood) > (density.log_prior + density.log_likelihood))[0]
        at, density = jax.tree.map(lambda new, old: jnp.where(climbs, new, old), (there, after), (at, density))
        return at, density, jnp.where(climbs, jnp.minimum(2 * length, 1), length / 4)

    begin = start, target.log_density(start), jnp.ones((), jnp.float64)
    mean, *_ = jax.lax.fori_loop(0, _NEWTON_STEPS, climb, begin)
    return NormalAtMode(mean, curvature)


def measure_curvature(target: Target, at: Position, units: Sequence[np.ndarray], once: Once = call_here) -> Curvature:
    """Return the factors of the inverse Hessian of the negative log density, at one chain (1, ...).

    Args:
        target: the log density.
        at: the chain.
        units: of each declared axis, (unit, width) shared coordinates that belong to one unit of it.
        once: calls a function with an array on one device, and gives its result to all devices.

    Raises:
        ConfigError: more than `MOST_COORDINATES` shared coordinates are outside of the units.
    """

    def product(tangent: Position) -> Position:
        """Return the negative Hessian times a tangent (...), without a chain axis."""
        lifted = map_parts(lambda x: x[None], tangent)
        _, change = jax.jvp(lambda q: target.log_density(q).gradient, (at,), (lifted,))
        return map_parts(lambda x: -x[0], change)

    zero = map_parts(lambda x: jnp.zeros_like(x[0]), at)
    dtype = jax.tree.leaves(at)[0].dtype
    dense = blocks = local = rest = unit = None
    if (shared := zero.shared) is not None:
        size = len(shared)
        unit = _join(units, size)
        rest = np.setdiff1d(np.arange(size), unit).astype(np.int32)
        if len(rest) > MOST_COORDINATES:
            raise ConfigError(
                f"the curvature at a mode is kept for {MOST_COORDINATES} shared coordinates outside of blocks, and the"
                f" model has {len(rest)}",
                "declare `blocks` in the model, or use another `sampling.initial.method` and `metric: low_rank`",
            )

        def rows(index: jax.Array) -> jax.Array:
            found = product(zero._replace(shared=shared.at[index].set(1, mode="drop"))).shared
            assert found is not None  # because `at` has this part
            return found

        if len(rest):
            hessian = jax.lax.map(lambda i: rows(i)[rest], jnp.asarray(rest), batch_size=_TANGENTS)
            dense = once(lambda precision: split_triangle(_factor(precision, dtype)), hessian)
        if len(unit):
            columns = jax.lax.map(rows, jnp.asarray(unit.T), batch_size=_TANGENTS)
            taken = jnp.take(columns, unit, axis=1, mode="fill", fill_value=0)
            blocks = _factor(jnp.moveaxis(taken, 0, -1), dtype)
    if zero.local is not None:
        ones = jnp.eye(zero.local.shape[1], dtype=dtype)[:, None, :] + zero.local[None]
        columns = jax.lax.map(lambda x: product(zero._replace(local=x)).local, ones, batch_size=_TANGENTS)
        local = _factor(jnp.moveaxis(columns, 0, -1), dtype)
    return Curvature(
        None if dense is None else jnp.asarray(rest),
        dense,
        None if blocks is None else jnp.asarray(unit),
        blocks,
        local,
    )


def _join(units: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the units of all axes in one array, (unit, widest) int32; narrow ones are padded with `size`."""
    widest = max((u.shape[1] for u in units), default=0)
    padded = [np.pad(u, ((0, 0), (0, widest - u.shape[1])), constant_values=size) for u in units]
    return np.concatenate([*padded, np.zeros((0, widest), int)]).astype(np.int32)


def _factor(precision: Float[Array, "... d d"], dtype: jnp.dtype) -> Float[Array, "... d d"]:
    """Return A such that A A^T is the inverse of a precision, computed in float64, adding the least multiple of its diagonal that suffices.

    A coordinate without curvature, such as padding, has variance 1.
    """
    wide = jnp.where(jnp.isfinite(precision), precision, 0).astype(jnp.float64)
    wide = (wide + jnp.swapaxes(wide, -1, -2)) / 2
    diagonal = jnp.abs(jnp.diagonal(wide, axis1=-2, axis2=-1))
    scale = jnp.where(diagonal > 0, jnp.where(diagonal > 0, diagonal, 1) ** -0.5, 1)
    identity = jnp.broadcast_to(jnp.eye(wide.shape[-1]), wide.shape)
    scaled = wide * scale[..., :, None] * scale[..., None, :]
    empty = jnp.where(diagonal > 0, 0.0, 1.0)[..., :, None] * identity

    def attempt(more: jax.Array) -> jax.Array:
        return jnp.linalg.cholesky(scaled + empty + more * identity)

    def is_bad(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return ~jnp.isfinite(carry[1]).all() & (carry[0] < 1e3)

    def try_more(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        more = jnp.maximum(10 * carry[0], 1e-6)
        return more, jnp.where(jnp.isfinite(carry[1]).all((-2, -1), keepdims=True), carry[1], attempt(more))

    zero = jnp.zeros((), jnp.float64)
    _, factor = jax.lax.while_loop(is_bad, try_more, (zero, attempt(zero)))
    inverse = solve_triangular(factor, identity, lower=True)
    return (scale[..., :, None] * jnp.swapaxes(inverse, -1, -2)).astype(dtype)


def _solve(root: jax.Array, q: jax.Array) -> jax.Array:
    return solve_triangular(root, q[..., None], lower=False)[..., 0]


def split_triangle(matrix: Float[Array, "size size"]) -> Columns:
    """Return the blocks of an upper triangular matrix, the narrow one first; the others can be spread over devices.

    >>> [block.shape for block in split_triangle(jnp.eye(2500))]
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
