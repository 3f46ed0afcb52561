"""A dense metric for the shared coordinates, from the scatter of draws and gradients; diagonal for local ones."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Axes, Position
from bayesmesh.kernels.hamiltonian.metrics.base import FLOOR, Metric, count_finite, fisher_root
from bayesmesh.kernels.hamiltonian.metrics.diagonal import DiagonalMetric, MomentState

MOST_COORDINATES = 1000
"""Most shared coordinates: an eigendecomposition at the end of every window then takes about a second."""

_DIAGONAL = DiagonalMetric()


class Dense(NamedTuple):
    """The metric's arrays.

    Attributes:
        root: (S, S), lower triangular, A for the shared coordinates.
        scale: scale of the local coordinates.
    """

    root: jax.Array
    scale: Position


class Scatter(NamedTuple):
    """Sums over the points of a window, float64 except `moments`.

    Attributes:
        moments: of every coordinate.
        mean: (2, S), of draws and of gradients.
        products: (2, S, S), of deviations of draws, and of gradients.
    """

    moments: MomentState
    mean: jax.Array
    products: jax.Array


class DenseMetric(Metric[Dense, Scatter]):
    """A is the Cholesky factor of the covariance that minimises the Fisher divergence."""

    def init(self, gradient: Position, mask: Position) -> Dense:
        """Return the initial metric, which is diagonal.

        Raises:
            ConfigError: the model has no shared coordinates, or more than `MOST_COORDINATES`.
        """
        size = 0 if gradient.shared is None else gradient.shared.shape[1]
        if not 1 <= size <= MOST_COORDINATES:
            raise ConfigError(
                f"key 'kernel.metric': dense takes 1 to {MOST_COORDINATES} shared coordinates, and the model has {size}",
                "use `metric: low_rank`, or `metric: diagonal`",
            )
        scale = _DIAGONAL.init(gradient, mask)
        return Dense(jnp.diag(_shared(scale)), scale._replace(shared=None))

    def move(self, data: Dense, momentum: Position) -> Position:
        """Return A p."""
        return _DIAGONAL.move(data.scale, momentum._replace(shared=None))._replace(
            shared=_shared(momentum) @ data.root.T
        )

    def whiten_gradient(self, data: Dense, gradient: Position) -> Position:
        """Return A^T g."""
        white = _DIAGONAL.whiten_gradient(data.scale, gradient._replace(shared=None))
        return white._replace(shared=_shared(gradient) @ data.root)

    def whiten_position(self, data: Dense, position: Position) -> Position:
        """Return A^-1 q."""
        white = _DIAGONAL.whiten_position(data.scale, position._replace(shared=None))
        return white._replace(shared=solve_triangular(data.root, _shared(position).T, lower=True).T)

    def init_estimate(self, like: Position) -> Scatter:
        """Return empty sums."""
        size = _shared(like).shape[1]
        return Scatter(_DIAGONAL.init_estimate(like), *(jnp.zeros((2, *[size] * i), jnp.float64) for i in (1, 2)))

    def update_estimate(self, estimate: Scatter, position: Position, gradient: Position) -> Scatter:
        """Add the current point of every chain."""
        counts = count_finite(gradient)
        merged = [
            _merge(estimate.moments.count, estimate.mean[i], estimate.products[i], _shared(part), counts)
            for i, part in enumerate((position, gradient))
        ]
        moments = _DIAGONAL.update_estimate(estimate.moments, position, gradient)
        return Scatter(moments, *map(jnp.stack, zip(*merged, strict=True)))

    def estimate(self, estimate: Scatter) -> Dense:
        """Return the factor of the covariance, found in the coordinates of the diagonal metric."""
        scale = _DIAGONAL.estimate(estimate.moments)
        wide = _shared(scale).astype(jnp.float64)
        draws, gradients = estimate.products / jnp.maximum(estimate.moments.count, 1)
        floor = FLOOR * jnp.eye(len(wide))
        root = fisher_root(draws / jnp.outer(wide, wide) + floor, gradients * jnp.outer(wide, wide) + floor)
        root = wide[:, None] * root
        factor = jnp.linalg.cholesky(root @ root.T)
        # Fewer points than coordinates, far from the mass, may have no factor in float64: the next window has nearer points.
        factor = jnp.where(jnp.isfinite(factor).all(), factor, jnp.diag(wide))
        return Dense(factor.astype(_shared(scale).dtype), scale._replace(shared=None))

    def data_axes(self) -> Dense:
        """Return the axes of the metric: the factor is replicated on every device."""
        return Dense(Axes(None, None), _DIAGONAL.data_axes())  # type: ignore[arg-type]  # axes stand in for arrays

    def estimate_axes(self) -> Scatter:
        """Return the axes of the sums."""
        return Scatter(_DIAGONAL.estimate_axes(), Axes(None, None), Axes(None, None, None))  # type: ignore[arg-type]  # axes stand in for arrays


def _shared(position: Position) -> jax.Array:
    assert position.shared is not None  # `init` refuses positions without it
    return position.shared


def _merge(
    count: Float[Array, ""],
    mean: Float[Array, " d"],
    products: Float[Array, "d d"],
    batch: Float[Array, "chain d"],
    counts: Bool[Array, " chain"],
) -> tuple[jax.Array, jax.Array]:
    """Update mean and products of deviations with the chains of a batch that count (Chan, Golub and LeVeque 1979)."""
    points = jnp.where(counts[:, None], batch, 0).astype(mean.dtype)
    num = counts.sum()
    batch_mean = points.sum(0) / jnp.maximum(num, 1)
    deviations, delta = jnp.where(counts[:, None], points - batch_mean[None], 0), batch_mean - mean
    share = num / jnp.maximum(count + num, 1)
    return mean + delta * share, products + deviations.T @ deviations + jnp.outer(delta, delta) * (count * share)
