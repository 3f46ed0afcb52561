"""A diagonal metric from the variances of positions and gradients.

For a normal target with precision H the gradient at q is -H q, so the ratio of the variances of position and gradient
is H**-2 on a diagonal target wherever the chains are: the estimate is right before convergence, and noise common to
both cancels. It is the diagonal that minimises the Fisher divergence to a standard normal, the rule
that nutpie uses (https://github.com/pymc-devs/nutpie).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import COORDINATES, SCALAR, Position, keep_computed, map_parts
from bayesmesh.kernels.hamiltonian.metrics.base import Metric, count_finite

_TINY = 1e-20


class MomentState(NamedTuple):
    """Running moments over chains and iterations; positions without the chain axis.

    Attributes:
        count: () float64, points seen.
        mean, spread: of positions; spread is the sum of squared deviations.
        gradient_mean, gradient_spread: of gradients.
    """

    count: jax.Array  # type: ignore[assignment]  # a field hides tuple.count, which nothing calls
    mean: Position
    spread: Position
    gradient_mean: Position
    gradient_spread: Position


class DiagonalMetric(Metric[Position, MomentState]):
    """Scales each coordinate by the square root of its inverse mass; its data is that scale, without the chain axis."""

    def init(self, gradient: Position, mask: Position) -> Position:
        """Return 1 / (1 + root mean square of the gradient)**0.5; entries that are not finite count as zero."""
        del mask

        def one(gradient: jax.Array) -> jax.Array:
            size = jnp.sqrt(jnp.mean(jnp.square(jnp.where(jnp.isfinite(gradient), gradient, 0)), axis=0))
            return jnp.where(jnp.isfinite(size), (1 + size) ** -0.5, 0)

        return map_parts(one, gradient)

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
        """Add the present point of every chain to the moments."""
        counts = keep_computed(count_finite(gradient))
        mean, spread = _merge(estimate.count, estimate.mean, estimate.spread, position, counts)
        gradient_mean, gradient_spread = _merge(
            estimate.count, estimate.gradient_mean, estimate.gradient_spread, gradient, counts
        )
        return MomentState(estimate.count + counts.sum(), mean, spread, gradient_mean, gradient_spread)

    def estimate(self, estimate: MomentState) -> Position:
        """Return (variance of position / variance of gradient)**0.25, within 1e-6 and 1e6."""
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
        return MomentState(SCALAR, COORDINATES, COORDINATES, COORDINATES, COORDINATES)  # type: ignore[arg-type]  # axes in the places of arrays


def _multiply(scale: Position, position: Position) -> Position:
    return map_parts(lambda s, x: s[None] * x, scale, position)


def _merge(
    count: jax.Array, mean: Position, spread: Position, batch: Position, counts: jax.Array
) -> tuple[Position, Position]:
    """Add those of a batch (chain, ...) that count to mean and spread (Chan, Golub and LeVeque 1979)."""

    def one(m: jax.Array, s: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        is_in = counts.reshape((-1,) + (1,) * (x.ndim - 1))
        num = counts.sum().astype(x.dtype)
        batch_mean = jnp.where(is_in, x, 0).sum(0) / jnp.maximum(num, 1)
        delta = batch_mean - m
        total = jnp.maximum(count.astype(x.dtype) + num, 1)
        deviation = jnp.where(is_in, x - batch_mean[None], 0)
        merged = s + jnp.square(deviation).sum(0) + jnp.square(delta) * (count.astype(x.dtype) * num / total)
        return m + delta * (num / total), merged

    # Of each part a pair, or None.
    pairs = jax.tree.map(one, mean, spread, batch)
    means, spreads = (Position(*(pair and pair[i] for pair in pairs)) for i in range(2))
    return means, spreads
