"""The metric from the curvature at a mode, which `sampling.initial.method: laplace` measures; warmup does not change it."""

from __future__ import annotations

import jax.numpy as jnp

from bayesmesh.kernels.base import Axes, Position, Target
from bayesmesh.kernels.hamiltonian.laplace import Curvature, normal_of, split_triangle
from bayesmesh.kernels.hamiltonian.metrics.base import FixedMetric


class CurvatureMetric(FixedMetric[Curvature]):
    """A is dense for shared coordinates, with one block for each unit of declared axes and for each local entry."""

    def init(self, gradient: Position, mask: Position) -> Curvature:
        """Return the identity."""
        shared, local = gradient
        rest = None if shared is None else jnp.arange(shared.shape[1], dtype=jnp.int32)
        dense = None if shared is None else split_triangle(jnp.eye(shared.shape[1], dtype=shared.dtype))
        blocks = None if local is None else jnp.eye(local.shape[2], dtype=local.dtype)[None] + 0 * local[0, :, :, None]
        return Curvature(rest, dense, None, None, blocks)

    def start(self, gradient: Position, target: Target) -> Curvature:
        """Return the curvature at the mode, as measured by the target.

        Raises:
            ConfigError: the target has none.
        """
        return normal_of(target, "key 'kernel.metric': curvature", "choose another metric").curvature

    def move(self, data: Curvature, momentum: Position) -> Position:
        """Return A p."""
        return data.move(momentum)

    def whiten_gradient(self, data: Curvature, gradient: Position) -> Position:
        """Return A^T g."""
        return data.move(gradient, is_transposed=True)

    def whiten_position(self, data: Curvature, position: Position) -> Position:
        """Return A^-1 q."""
        return data.solve(position)

    def data_axes(self) -> Curvature:
        """Return the axes of the factors: the columns of a dense one are spread over devices, and blocks of entries lie with their data."""
        dense, units, blocks = Axes(None, "spread"), Axes(None, None), Axes(None, None, None)
        return Curvature(Axes(None), dense, units, blocks, Axes("entry", None, None))  # type: ignore[arg-type]  # axes stand in for arrays
