"""A diagonal scale from the spread of positions and of gradients.

For a normal target with precision H the gradient at q is -H q, so the ratio of the variances of position and gradient
is H**-2 on a diagonal target wherever the chains happen to be: the estimate is right before they have converged, and
noise common to both cancels. It is the diagonal that minimises the Fisher divergence to a standard normal, the rule
that nutpie uses (https://github.com/pymc-devs/nutpie).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import Position

__all__ = ["MomentState", "estimate_scale", "init_moments", "initial_scale", "update_moments"]

_TINY = 1e-20


class MomentState(NamedTuple):
    """Running moments over chains and iterations, position-shaped without the chain axis.

    Attributes:
        count: () samples seen.
        mean, spread: of positions; spread is the sum of squared deviations.
        gradient_mean, gradient_spread: of gradients.
    """

    count: jax.Array
    mean: Position
    spread: Position
    gradient_mean: Position
    gradient_spread: Position


def initial_scale(gradient: Position, active: Position) -> Position:
    """Return a first scale out of the gradient where the chains start: 1 / (1 + its root mean square) ** 1/2.

    Args:
        gradient: (chain, ...); entries that are not finite count as zero.
        active: no chain axis; coordinates that are 0 there keep the scale 0.
    """

    def one(gradient: jax.Array, is_active: jax.Array) -> jax.Array:
        size = jnp.sqrt(jnp.mean(jnp.square(jnp.where(jnp.isfinite(gradient), gradient, 0)), axis=0))
        return jnp.where((is_active > 0) & jnp.isfinite(size), (1 + size) ** -0.5, 0) + 0 * is_active

    return jax.tree.map(one, gradient, active)


def init_moments(like: Position) -> MomentState:
    """Return empty moments; `like` has no chain axis."""
    zeros = jax.tree.map(jnp.zeros_like, like)
    return MomentState(jnp.zeros((), jnp.float64), zeros, zeros, zeros, zeros)


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
        deviation = jnp.where(is_in, x - batch_mean, 0)
        merged = s + jnp.square(deviation).sum(0) + jnp.square(delta) * (count.astype(x.dtype) * num / total)
        return m + delta * (num / total), merged

    pairs = {k: one(mean[k], spread[k], batch[k]) for k in mean}
    return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}


def update_moments(state: MomentState, position: Position, gradient: Position) -> MomentState:
    """Add the present point of every chain whose gradient is finite; one that is lost must not spoil the others."""
    finite = [jnp.isfinite(gradient[k]).reshape(gradient[k].shape[0], -1).all(1) for k in sorted(gradient)]
    counts = jnp.stack(finite).all(0)
    mean, spread = _merge(state.count, state.mean, state.spread, position, counts)
    gradient_mean, gradient_spread = _merge(state.count, state.gradient_mean, state.gradient_spread, gradient, counts)
    return MomentState(state.count + counts.sum(), mean, spread, gradient_mean, gradient_spread)


def estimate_scale(state: MomentState, active: Position) -> Position:
    """Return (variance of position / variance of gradient) ** 1/4 where `active`, and 0 elsewhere."""

    def one(spread: jax.Array, gradient_spread: jax.Array, is_active: jax.Array) -> jax.Array:
        ratio = (spread + _TINY) / (gradient_spread + _TINY)
        return jnp.where(is_active > 0, jnp.clip(ratio**0.25, 1e-6, 1e6), 0)

    return jax.tree.map(one, state.spread, state.gradient_spread, active)
