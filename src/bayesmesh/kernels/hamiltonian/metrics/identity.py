"""The metric that leaves coordinates as they are."""

from __future__ import annotations

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.base import Metric


class IdentityMetric(Metric[tuple[()], tuple[()]]):
    """No metric: every coordinate has unit mass."""

    is_adaptive = False

    def init(self, gradient: Position, mask: Position) -> tuple[()]:
        """Return empty data."""
        del gradient, mask
        return ()

    def move(self, data: tuple[()], momentum: Position) -> Position:
        """Return the momentum."""
        del data
        return momentum

    def whiten_gradient(self, data: tuple[()], gradient: Position) -> Position:
        """Return the gradient."""
        del data
        return gradient

    def whiten_position(self, data: tuple[()], position: Position) -> Position:
        """Return the position."""
        del data
        return position

    def init_estimate(self, like: Position) -> tuple[()]:
        """Return an empty estimate."""
        del like
        return ()

    def update_estimate(self, estimate: tuple[()], position: Position, gradient: Position) -> tuple[()]:
        """Return the empty estimate."""
        del position, gradient
        return estimate

    def estimate(self, estimate: tuple[()]) -> tuple[()]:
        """Return the empty metric."""
        return estimate

    def data_axes(self) -> tuple[()]:
        """Return empty axes."""
        return ()

    def estimate_axes(self) -> tuple[()]:
        """Return empty axes."""
        return ()
