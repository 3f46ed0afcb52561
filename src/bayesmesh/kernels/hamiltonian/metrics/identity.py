"""The metric that leaves coordinates as they are."""

from __future__ import annotations

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.base import FixedMetric


class IdentityMetric(FixedMetric[tuple[()]]):
    """No metric: every coordinate has unit mass."""

    def init(self, gradient: Position, mask: Position) -> tuple[()]:
        """Return empty data."""
        return ()

    def move(self, data: tuple[()], momentum: Position) -> Position:
        """Return the momentum."""
        return momentum

    def whiten_gradient(self, data: tuple[()], gradient: Position) -> Position:
        """Return the gradient."""
        return gradient

    def whiten_position(self, data: tuple[()], position: Position) -> Position:
        """Return the position."""
        return position

    def data_axes(self) -> tuple[()]:
        """Return empty axes."""
        return ()
