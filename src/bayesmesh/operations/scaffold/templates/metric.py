"""A diagonal metric from the variances of the draws alone, shrunk towards a small multiple of the identity."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import COORDINATES, SCALAR, Position, map_parts
from bayesmesh.kernels.hamiltonian.metrics.base import Metric, count_finite

__all__ = ["NewMetric"]


class Moments(NamedTuple):
    """Number of points, () float64, their mean and the sum of squared deviations, positions without a chain axis."""

    num_points: jax.Array
    mean: Position
    spread: Position


class NewMetric(Metric[Position, Moments]):
    """New metric: A is diagonal; its data is that diagonal, the standard deviations."""

    def init(self, gradient: Position, mask: Position) -> Position:
        """Return the identity."""
        del mask
        return map_parts(lambda g: jnp.ones(g.shape[1:], g.dtype), gradient)

    def move(self, data: Position, momentum: Position) -> Position:
        """Return A p."""
        return map_parts(lambda scale, p: scale[None] * p, data, momentum)

    def whiten_gradient(self, data: Position, gradient: Position) -> Position:
        """Return A^T g, here A g."""
        return self.move(data, gradient)

    def whiten_position(self, data: Position, position: Position) -> Position:
        """Return A^-1 q."""
        return map_parts(lambda scale, q: q / scale[None], data, position)

    def init_estimate(self, like: Position) -> Moments:
        """Return empty moments."""
        zeros = map_parts(lambda q: jnp.zeros(q.shape[1:], q.dtype), like)
        return Moments(jnp.zeros((), jnp.float64), zeros, zeros)

    def update_estimate(self, estimate: Moments, position: Position, gradient: Position) -> Moments:
        """Add the points of the chains whose gradient is finite (Welford 1962)."""
        counts = count_finite(gradient)
        num_points = estimate.num_points + counts.sum()

        def deviations(mean: jax.Array, q: jax.Array) -> jax.Array:
            return jnp.where(counts.reshape(-1, *[1] * mean.ndim), q - mean[None], 0)

        def shift(mean: jax.Array, q: jax.Array) -> jax.Array:
            return mean + deviations(mean, q).sum(axis=0) / jnp.maximum(num_points, 1).astype(q.dtype)

        def widen(spread: jax.Array, before: jax.Array, after: jax.Array, q: jax.Array) -> jax.Array:
            return spread + (deviations(before, q) * deviations(after, q)).sum(axis=0)

        mean = map_parts(shift, estimate.mean, position)
        return Moments(num_points, mean, map_parts(widen, estimate.spread, estimate.mean, mean, position))

    def estimate(self, estimate: Moments) -> Position:
        """Return the standard deviations; few points count as five more of variance 1e-3, so that none is 0."""
        num = jnp.maximum(estimate.num_points, 2)

        def scale(spread: jax.Array) -> jax.Array:
            variance = spread / (num - 1).astype(spread.dtype)
            weight = (num / (num + 5)).astype(spread.dtype)
            return jnp.sqrt(weight * variance + 1e-3 * (1 - weight))

        return map_parts(scale, estimate.spread)

    def data_axes(self) -> Position:
        """Return the axes of the standard deviations."""
        axes: Position = COORDINATES
        return axes

    def estimate_axes(self) -> Moments:
        """Return the axes of the moments."""
        return Moments(SCALAR, COORDINATES, COORDINATES)  # type: ignore[arg-type]  # axes in the places of arrays
