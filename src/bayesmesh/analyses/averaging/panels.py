"""Draw panels on averaging: scores of single draws and of their average, by number of draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from bayesmesh.figures.canvas import MUTED, Panel, draw, log_axis, series

__all__ = ["MEASURES", "draw_reliability", "draw_score"]

MEASURES = {
    "accuracy": ("Accuracy", "higher is better"),
    "log_score": ("Log score", "mean log probability of the outcome in nats, higher is better"),
    "brier": ("Brier score", "lower is better"),
    "ece": ("Calibration error", "expected calibration error, lower is better"),
}
"""Score -> heading and explanation."""


def draw_score(scores: pd.DataFrame, measure: str, *, is_main: bool = False) -> Panel | None:
    """Draw a score of single draws and of their average against the number of draws, on a logarithmic axis.

    Args:
        scores: table from `read_scores`.
        measure: one of `MEASURES`.
        is_main: draw a large panel with both final values beside the lines.

    Returns:
        None if the measure was recorded at fewer than two draw counts.
    """
    kept = scores[(scores["num_draws"] > 0) & np.isfinite(scores[f"average_{measure}"])]
    if len(kept) < 2:
        return None
    columns = ("num_draws", f"single_{measure}", f"average_{measure}", "single_accuracy_sd")
    num_draws, single, average, spread = (kept[column].to_numpy() for column in columns)
    heading, reading = MEASURES[measure]

    def plot(axes: Axes) -> None:
        if measure == "accuracy" and np.isfinite(spread).any():
            axes.fill_between(num_draws, single - spread, single + spread, color=series(3), alpha=0.15, linewidth=0)
        for values, colour, dashes in ((single, series(3), (0, (4, 2))), (average, series(0), "solid")):
            (line,) = axes.plot(num_draws, values, color=colour, linestyle=dashes, marker="o", linewidth=1.7)
            line.set_markersize(3.5 if is_main else 2.5)
        axes.set_xscale("log")
        log_axis(axes.xaxis, lambda v: f"{v:,.0f}")
        if num_draws.max() < 10 * num_draws.min():
            axes.xaxis.set_major_locator(FixedLocator([*num_draws]))
        axes.set_xlabel("draws in the average")
        if is_main:
            axes.set_ylabel(heading.lower())
            _mark_gain(axes, float(num_draws[-1]), float(single[-1]), float(average[-1]))

    size = (420, 260) if is_main else (340, 190)
    label = f"{heading} against number of draws: single draws {single[-1]:.4g}, their average {average[-1]:.4g}"
    return draw(
        f"score-{measure}", plot, size=size, label=label, title=heading, note=f"{reading[0].upper()}{reading[1:]}."
    )


def _mark_gain(axes: Axes, at: float, single: float, average: float) -> None:
    """Write both final values beside the ends of the lines."""
    for value, colour in ((single, series(3)), (average, series(0))):
        axes.annotate(
            f"{value:.4f}",
            (at, value),
            xytext=(7, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=10,
        )


def draw_reliability(probabilities: np.ndarray, labels: np.ndarray, num_bins: int = 12) -> Panel:
    """Draw the accuracy of the averaged prediction against its confidence.

    Args:
        probabilities: averaged probabilities, shape (row, class).
        labels: class labels, shape (row,).
        num_bins: number of equal-width confidence bins.

    Reference:
        Guo et al. 2017, "On calibration of modern neural networks", arXiv:1706.04599, section 2.
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    rows = np.bincount(bins, minlength=num_bins)
    kept = rows > 0
    mean = np.bincount(bins, confidence, num_bins)[kept] / rows[kept]
    right = np.bincount(bins, is_right, num_bins)[kept] / rows[kept]
    # Wilson's interval stays inside [0, 1] and has positive width even if all rows of a bin are correct.
    z, n = 1.96, rows[kept]
    centre = (right + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(right * (1 - right) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)

    def plot(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        axes.vlines(mean, centre - half, centre + half, color=series(0), linewidth=1.2)
        axes.plot(mean, right, color=series(0), marker="o", markersize=4, linewidth=0)
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("probability of the predicted class")
        axes.set_ylabel("share of correct predictions")

    note = f"The average's predictions on {len(labels):,} rows, in bins of equal width, with 95% intervals."
    return draw(
        "reliability", plot, size=(340, 220), label="Reliability diagram of the average", title="Calibration", note=note
    )
