"""Draw effective sample sizes against the number of draws, and over quantiles and small intervals."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from bayesmesh.analyses.figures.canvas import FAIL, MUTED, Panel, draw, series

NUM_LOOKS = 12
"""Largest number of points of a curve of growth."""

NUM_INTERVALS = 20
"""Number of intervals of equal probability."""

_QUANTILES = np.linspace(0.05, 0.95, 19)
_FEWEST_DRAWS = 20
_HALF = (340, 210)


def draw_growth(draws: np.ndarray, label: str, limit: float | None) -> Panel | None:
    """Draw bulk and tail effective sample sizes of the first draws of all chains, for growing numbers of draws.

    Args:
        draws: (chain, draw), float64.
        label: label of the quantity.
        limit: limit of the gate on bulk ESS, or None.

    Returns:
        The panel; None for fewer than 20 draws per chain, or a non-finite draw.
    """
    from bayesmesh.diagnostics.efficiency import growing_ess  # imports scipy

    num_chains, num_draws = draws.shape
    if num_draws < _FEWEST_DRAWS or not np.isfinite(draws).all():
        return None
    counts = np.unique(np.linspace(num_draws / NUM_LOOKS, num_draws, NUM_LOOKS).round().astype(int).clip(4))
    bulk, tail = growing_ess(draws[:, :, None], counts.tolist())

    def plot(axes: Axes) -> None:
        for number, values in enumerate((bulk[:, 0], tail[:, 0])):
            axes.plot(counts, values, color=series(3 * number), linewidth=1.5, marker="o", markersize=3)
        _mark(axes, limit)
        axes.set_xlim(0, num_draws)
        axes.set_xlabel("draws of each chain")

    note = f"ESS of {label}. Both curves should grow in proportion to the draws; one that levels off or falls means that a mode or a tail was found late."
    said = f"Effective sample sizes of {label} against the number of draws of {num_chains} chains"
    return draw("growth", plot, size=_HALF, label=said, title="Effective draws as draws grow", note=note)


def draw_efficiency(draws: np.ndarray, label: str, limit: float | None) -> Panel | None:
    """Draw effective sample sizes for quantiles and for probabilities of small intervals; see `draw_growth`."""
    from bayesmesh.diagnostics.efficiency import local_ess, quantile_ess

    if draws.shape[1] < _FEWEST_DRAWS or not np.isfinite(draws).all():
        return None
    of_quantiles = quantile_ess(draws[:, :, None], _QUANTILES.tolist())[:, 0]
    local = local_ess(draws[:, :, None], NUM_INTERVALS)[:, 0]
    edges = np.linspace(0, 1, NUM_INTERVALS + 1)

    def plot(axes: Axes) -> None:
        axes.stairs(local, edges, color=MUTED, fill=True, alpha=0.35)
        axes.plot(_QUANTILES, of_quantiles, color=series(0), linewidth=1.5, marker="o", markersize=3)
        _mark(axes, limit)
        axes.set_xlim(0, 1)
        axes.set_xlabel("probability")

    note = (
        f"ESS for {label}. Line: for the estimate of each quantile. Shaded: for the probabilities of {NUM_INTERVALS} intervals between"
        " quantiles. A dip marks a region that chains seldom enter or leave."
    )
    said = f"Effective sample sizes of quantiles and of small intervals of {label}"
    return draw("efficiency", plot, size=_HALF, label=said, title="Effective draws by region", note=note)


def _mark(axes: Axes, limit: float | None) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if limit is not None and limit > 0:
        axes.axhline(limit, color=FAIL, linewidth=1.4, linestyle=(0, (4, 2)))
