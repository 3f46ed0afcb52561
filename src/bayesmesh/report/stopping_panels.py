"""Draw panels on the stopping rule: a target and its value at each look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from bayesmesh.figures.canvas import FAIL, MUTED, NUM_SERIES, Panel, draw, log_axis, series
from bayesmesh.store.manifests import TargetEntry

__all__ = ["draw_target"]


def draw_target(
    name: str, label: str, target: TargetEntry, lines: Mapping[str, Sequence[tuple[float, float]]]
) -> Panel:
    """Draw the worst value of a statistic at every look, one line per chain group, and its target.

    Args:
        name: name of the panel.
        label: name of the statistic.
        target: mapping with `name`, whose prefix gives the direction, and `target`, the limit.
        lines: chain group -> (draws, value) of its looks; NaN for a missing value.
    """
    limit, is_upper = float(target["target"]), str(target["name"]).startswith("max")

    def plot(axes: Axes) -> None:
        for position, line in enumerate(lines.values()):
            draws, values = np.array(line, dtype=float).reshape(-1, 2).T
            # Groups beyond the eight colours are grey.
            colour = series(position) if position < NUM_SERIES else MUTED
            axes.plot(draws, values, color=colour, marker="o", markersize=3, linewidth=1.2)
        axes.axhline(limit, color=FAIL, linewidth=1.4, linestyle=(0, (4, 2)))
        axes.set_xscale("log")
        log_axis(axes.xaxis, lambda v: f"{v:,.0f}")
        axes.set_xlabel("draws per chain at the look")

    side = "below" if is_upper else "above"
    return draw(
        name,
        plot,
        size=(340, 200),
        label=f"{label} at each look, target {limit:.6g}",
        title=label,
        note=f"Worst value that each look evaluated; met at or {side} the dashed line.",
    )
