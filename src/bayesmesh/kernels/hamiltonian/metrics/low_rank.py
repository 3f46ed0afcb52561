"""A diagonal metric corrected in a few directions, from draws and gradients, with memory linear in the number of coordinates.

In the coordinates of the diagonal metric, the covariance that minimises the Fisher divergence is found within the span
of some draws and gradients. The directions in which it is farthest from the identity are kept. All computations use Gram
matrices of these points, in float64.

Reference:
    Seyboldt, Carlson and Carpenter 2026, arXiv:2603.18845; the rule of nutpie (https://github.com/pymc-devs/nutpie).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bayesmesh.kernels.base import COORDINATES, SCALAR, Axes, Position, map_parts
from bayesmesh.kernels.hamiltonian.metrics.base import FLOOR, Metric, count_finite, fisher_root
from bayesmesh.kernels.hamiltonian.metrics.diagonal import DiagonalMetric, MomentState

_DIAGONAL = DiagonalMetric()

_CUTOFF = math.log(2)
"""Directions whose log variance is smaller than this in magnitude are left as they are: most of the deviation is noise."""

_NEGLIGIBLE = 1e-10
"""Share of the largest eigenvalue of a Gram matrix below which a direction is not resolved."""


class LowRank(NamedTuple):
    """The metric's arrays: A = D (I + U^T (diag(stretch) - I) U), with D a diagonal.

    Attributes:
        scale: the diagonal D.
        directions: U, (rank, S) and (rank, entry, k): orthonormal rows; unused rows are 0.
        stretch: (rank,) float64, standard deviations along them.
    """

    scale: Position
    directions: Position
    stretch: jax.Array


class Buffer(NamedTuple):
    """Points of a window: all chains, or the first ones, at evenly spaced iterations.

    Attributes:
        moments: of every coordinate, over all points of the window.
        num_iterations: () int32, in the window so far.
        stride: () int32, iterations between those that are kept.
        is_point: (slot, chain) bool.
        draws, gradients: (slot, chain, S) and (slot, chain, entry, k).
    """

    moments: MomentState
    num_iterations: jax.Array
    stride: jax.Array
    is_point: jax.Array
    draws: Position
    gradients: Position


class LowRankMetric(Metric[LowRank, Buffer]):
    """Diagonal plus low rank; a window keeps at most ``2 * metric_rank`` points, and at least 32."""

    def _rank(self, like: Position) -> int:
        """Return the number of directions, at most one for each coordinate of positions (chain, ...)."""
        return min(self.options.metric_rank, sum(math.prod(q.shape[1:]) for q in jax.tree.leaves(like)))

    def init(self, gradient: Position, mask: Position) -> LowRank:
        """Return the initial metric, which is diagonal."""
        rank = self._rank(gradient)
        directions = map_parts(lambda g: jnp.zeros((rank, *g.shape[1:]), g.dtype), gradient)
        return LowRank(_DIAGONAL.init(gradient, mask), directions, jnp.ones(rank, jnp.float64))

    def move(self, data: LowRank, momentum: Position) -> Position:
        """Return A p."""
        return _DIAGONAL.move(data.scale, _stretch(data.directions, data.stretch, momentum))

    def whiten_gradient(self, data: LowRank, gradient: Position) -> Position:
        """Return A^T g."""
        return _stretch(data.directions, data.stretch, _DIAGONAL.whiten_gradient(data.scale, gradient))

    def whiten_position(self, data: LowRank, position: Position) -> Position:
        """Return A^-1 q."""
        return _stretch(data.directions, 1 / data.stretch, _DIAGONAL.whiten_position(data.scale, position))

    def init_estimate(self, like: Position) -> Buffer:
        """Return an empty buffer."""
        most = 2 * max(self._rank(like), 16)
        num_chains = min(jax.tree.leaves(like)[0].shape[0], most // 2)
        shape = (most // num_chains // 2 * 2, num_chains)
        points = map_parts(lambda q: jnp.zeros((*shape, *q.shape[1:]), q.dtype), like)
        none, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
        return Buffer(_DIAGONAL.init_estimate(like), none, one, jnp.zeros(shape, bool), points, points)

    def update_estimate(self, estimate: Buffer, position: Position, gradient: Position) -> Buffer:
        """Add the current point of every chain; a full buffer first drops every other iteration."""
        num_slots, num_chains = estimate.is_point.shape
        is_full = estimate.num_iterations == num_slots * estimate.stride
        kept = jax.lax.cond(is_full, _halve, lambda e: e, estimate)
        slot, takes = kept.num_iterations // kept.stride, kept.num_iterations % kept.stride == 0
        counts = count_finite(gradient)

        def put(buffer: jax.Array, new: jax.Array) -> jax.Array:
            return buffer.at[slot].set(jnp.where(takes, new[:num_chains], buffer[slot]))

        return Buffer(
            _DIAGONAL.update_estimate(kept.moments, position, gradient),
            kept.num_iterations + 1,
            kept.stride,
            put(kept.is_point, counts),
            map_parts(put, kept.draws, position),
            map_parts(put, kept.gradients, gradient),
        )

    def estimate(self, estimate: Buffer) -> LowRank:
        """Return the metric at the end of a window; choose directions by how far their variance is from 1."""
        scale = _DIAGONAL.estimate(estimate.moments)
        is_point = estimate.is_point.reshape(-1)
        draws = map_parts(lambda q, s: _deviations(q, is_point) / s[None], estimate.draws, scale)
        gradients = map_parts(lambda g, s: _deviations(g, is_point) * s[None], estimate.gradients, scale)
        points = map_parts(lambda *parts: jnp.concatenate(parts), draws, gradients)
        gram = _products(points, points)
        combinations, variances = _principal_directions(gram, is_point.sum(), self._rank(draws))
        directions = map_parts(lambda x: jnp.tensordot(combinations.T, x, 1), points)
        # The Gram matrix resolves small directions to only half of the digits: orthonormalise the rows once more.
        is_used = variances != 1
        factor = jnp.linalg.cholesky(_products(directions, directions) + jnp.diag(~is_used))
        inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(factor)), lower=True)
        directions = map_parts(lambda x, s: jnp.tensordot(inverse, x, 1).astype(s.dtype), directions, scale)
        return LowRank(scale, directions, jnp.sqrt(variances))

    def data_axes(self) -> LowRank:
        """Return the axes of the metric."""
        return LowRank(COORDINATES, Position(Axes(None, None), Axes(None, "entry", None)), Axes(None))  # type: ignore[arg-type]  # axes stand in for arrays

    def estimate_axes(self) -> Buffer:
        """Return the axes of the buffer."""
        points: Position = Position(Axes(None, None, None), Axes(None, None, "entry", None))  # type: ignore[arg-type]  # axes stand in for arrays
        return Buffer(_DIAGONAL.estimate_axes(), SCALAR, SCALAR, Axes(None, None), points, points)  # type: ignore[arg-type]  # axes stand in for arrays


def _stretch(directions: Position, stretch: Float[Array, " rank"], position: Position) -> Position:
    """Return positions (chain, ...) times (I + U^T (diag(stretch) - I) U)."""
    along = _products(position, directions)
    more = along * (stretch - 1).astype(along.dtype)[None]
    return map_parts(lambda x, u: x + jnp.tensordot(more.astype(x.dtype), u, 1), position, directions)


def _products(a: Position, b: Position) -> Float[Array, "a b"]:
    """Return the inner products of positions (a, ...) and (b, ...)."""
    terms = [
        jnp.tensordot(x, y, [tuple(range(1, x.ndim))] * 2) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
    ]
    return sum(terms[1:], terms[0])


def _halve(estimate: Buffer) -> Buffer:
    """Keep every other slot, moved to the front."""
    half = estimate.is_point.shape[0] // 2
    is_point, draws, gradients = jax.tree.map(
        lambda x: x.at[:half].set(x[::2]), (estimate.is_point, estimate.draws, estimate.gradients)
    )
    return Buffer(
        estimate.moments,
        estimate.num_iterations,
        2 * estimate.stride,
        is_point.at[half:].set(False),
        draws,
        gradients,
    )


def _deviations(points: Float[Array, "slot chain ..."], is_point: Bool[Array, " point"]) -> Float[Array, "point ..."]:
    """Return deviations from the mean, float64; 0 for a slot that is not a point."""
    flat = points.reshape(-1, *points.shape[2:]).astype(jnp.float64)
    is_in = is_point.reshape(-1, *[1] * (flat.ndim - 1))
    mean = jnp.where(is_in, flat, 0).sum(0) / jnp.maximum(is_point.sum(), 1)
    return jnp.where(is_in, flat - mean[None], 0)


def _principal_directions(
    gram: Float[Array, "points points"], num_points: jax.Array, rank: int
) -> tuple[Float[Array, "points rank"], Float[Array, " rank"]]:
    """Return directions as combinations of points, and the variances along them; 0 and 1 for unused directions.

    Args:
        gram: inner products of the draws followed by the gradients.
        num_points: number of draws, without empty slots.
        rank: largest number of directions.
    """
    num_draws = len(gram) // 2
    values, vectors = jnp.linalg.eigh(gram)
    is_resolved = values > _NEGLIGIBLE * jnp.maximum(values[-1], 1e-300)
    basis = vectors * jnp.where(is_resolved, jnp.where(is_resolved, values, 1) ** -0.5, 0)[None]
    along = gram @ basis
    floor = FLOOR * jnp.eye(len(gram))
    draws, gradients = (x.T @ x / jnp.maximum(num_points, 1) + floor for x in (along[:num_draws], along[num_draws:]))
    root = fisher_root(draws, gradients)
    variances, vectors = jnp.linalg.eigh(root @ root.T)
    order = jnp.argsort(-jnp.abs(jnp.log(variances)))[:rank]
    variances, vectors = variances[order], vectors[:, order]
    is_used = jnp.abs(jnp.log(variances)) > _CUTOFF
    return basis @ vectors * is_used[None], jnp.where(is_used, variances, 1)
