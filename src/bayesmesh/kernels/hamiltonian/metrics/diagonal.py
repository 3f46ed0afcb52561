"""A diagonal metric from the variances of positions and gradients.

For a normal target with precision H the gradient at q is -H q. On a diagonal target, the ratio of the variances of position
and gradient is therefore H**-2 wherever the chains are: the estimate is right before convergence, and noise common to both
cancels. It is the diagonal metric that minimises the Fisher divergence to a standard normal, as in nutpie
(https://github.com/pymc-devs/nutpie).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import COORDINATES, SCALAR, Position, Target, keep_computed, map_parts, sum_together
from bayesmesh.kernels.hamiltonian.metrics.base import Metric, count_finite

_TINY = 1e-20


class MomentState(NamedTuple):
    """Running moments over chains and iterations; positions without the chain axis.

    Attributes:
        count: () float64, points seen.
        mean, spread: of positions; spread is the sum of squared deviations.
        gradient_mean, gradient_spread: of gradients.
    """

    count: jax.Array  # type: ignore[assignment]  # the field shadows tuple.count, which nothing calls
    mean: Position
    spread: Position
    gradient_mean: Position
    gradient_spread: Position


class DiagonalMetric(Metric[Position, MomentState]):
    """Scales each coordinate by the square root of its inverse mass; its data is that scale, without the chain axis."""

    def init(self, gradient: Position, mask: Position) -> Position:
        """Return 1 / (1 + root mean square of the gradient)**0.5; entries that are not finite count as zero."""

        def one(gradient: jax.Array) -> jax.Array:
            size = jnp.sqrt(jnp.mean(jnp.square(jnp.where(jnp.isfinite(gradient), gradient, 0)), axis=0))
            return jnp.where(jnp.isfinite(size), (1 + size) ** -0.5, 0)

        return map_parts(one, gradient)

    def start(self, gradient: Position, target: Target) -> Position:
        """Return 1 on unit scale, and else what the gradients say."""
        if not target.has_unit_scale:
            return super().start(gradient, target)
        return jax.tree.map(lambda g: jnp.ones(g.shape[1:], g.dtype), gradient)

    def move(self, data: Position, momentum: Position) -> Position:
        """Return scale times momentum."""
        return _multiply(data, momentum)

    def whiten_gradient(self, data: Position, gradient: Position) -> Position:
        """Return scale times gradient."""
        return _multiply(data, gradient)

    def whiten_position(self, data: Position, position: Position) -> Position:
        """Return position divided by scale, 0 where the scale is 0."""
        return map_parts(lambda s, q: jnp.where(s[None] > 0, q / jnp.where(s > 0, s, 1)[None], 0), data, position)

    def init_estimate(self, like: Position) -> MomentState:
        """Return empty moments."""
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), like)
        return MomentState(jnp.zeros((), jnp.float64), zeros, zeros, zeros, zeros)

    def update_estimate(self, estimate: MomentState, position: Position, gradient: Position) -> MomentState:
        """Add the current point of every chain to the moments."""
        counts = keep_computed(count_finite(gradient))

        def one(*part: jax.Array) -> list[jax.Array]:
            mean, spread, gradient_mean, gradient_spread, q, g = part
            return _merge(estimate.count, (mean, gradient_mean), (spread, gradient_spread), (q, g), counts)

        # Means and spreads of each part, or None.
        parts = jax.tree.map(one, *estimate[1:], position, gradient)
        merged = (Position(*(part and part[i] for part in parts)) for i in range(4))
        return MomentState(estimate.count + counts.sum(), *merged)

    def estimate(self, estimate: MomentState) -> Position:
        """Return (variance of position / variance of gradient)**0.25, clipped to between 1e-6 and 1e6."""
        return map_parts(
            lambda spread, of_gradient: jnp.clip(((spread + _TINY) / (of_gradient + _TINY)) ** 0.25, 1e-6, 1e6),
            estimate.spread,
            estimate.gradient_spread,
        )

    def data_axes(self) -> Position:
        """Return the axes of the scale."""
        return COORDINATES

    def estimate_axes(self) -> MomentState:
        """Return the axes of the moments."""
        return MomentState(SCALAR, COORDINATES, COORDINATES, COORDINATES, COORDINATES)  # type: ignore[arg-type]  # axes stand in for arrays


def _multiply(scale: Position, position: Position) -> Position:
    return map_parts(lambda s, x: s[None] * x, scale, position)


def _merge(
    count: jax.Array,
    means: tuple[jax.Array, ...],
    spreads: tuple[jax.Array, ...],
    batches: tuple[jax.Array, ...],
    counts: jax.Array,
) -> list[jax.Array]:
    """Update means and spreads with the chains of batches (chain, ...) that count (Chan, Golub and LeVeque 1979).

    Returns:
        Mean and spread of the first batch, then of the second, and so on.
    """
    is_in = counts.reshape((-1,) + (1,) * (batches[0].ndim - 1))
    num, count = (x.astype(batches[0].dtype) for x in (counts.sum(), count))
    share = num / jnp.maximum(count + num, 1)
    sums = sum_together(*(jnp.where(is_in, x, 0) for x in batches), axes=(0,))
    centres = [each / jnp.maximum(num, 1) for each in sums]
    deviations = (jnp.where(is_in, x - centre[None], 0) for x, centre in zip(batches, centres, strict=True))
    squares = sum_together(*map(jnp.square, deviations), axes=(0,))
    merged = []
    for mean, spread, centre, square in zip(means, spreads, centres, squares, strict=True):
        merged += [mean + (centre - mean) * share, spread + square + jnp.square(centre - mean) * count * share]
    return merged
