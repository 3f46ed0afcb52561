"""Draw the outcome by a column of the data: observed and predicted means, and the middle of the outcomes."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import Panel, draw, series, tip
from bayesmesh.analyses.figures.sections import FiguresByColumn
from bayesmesh.analyses.predictive_checks.quantities import FITTED

MOST_LEVELS_DRAWN = 24

MOST_UPRIGHT = 5
"""Largest number of level labels side by side."""

_OF_NUMBERS = (
    "Dots are mean outcomes in bins of rows. The line is the predicted mean of these rows, whatever their other predictors are; the dark band holds all "
    "dots together with 99% probability if the model is right. Bars and the light band hold the middle 90% of the observed and of the simulated outcomes "
    "of each bin; the ends of bars vary by chance, the more so the fewer rows a bin has."
)
_OF_SHARES = (
    "Dots are observed shares in bins of rows. The line is the predicted share, averaged over the rows of a bin, whatever their other predictors are; "
    "the shaded band holds all dots together with 99% probability if the model is right."
)


def figures_by_column(bins: pd.DataFrame, *, is_class: bool) -> FiguresByColumn | None:
    """Return figures of the columns of ``bins.csv``; None if the outcome has no order or nothing was binned.

    Args:
        bins: the table.
        is_class: whether the outcome is one of several classes.
    """
    of_columns = bins[bins["variable"] != FITTED]
    if of_columns.empty or is_class:
        return None
    parts = {str(name): part for name, part in of_columns.groupby("variable", sort=False)}
    note = _OF_NUMBERS if np.isfinite(of_columns["interval_low"]).any() else _OF_SHARES
    return FiguresByColumn({name: functools.partial(draw_outcome, name, part) for name, part in parts.items()}, note)


def draw_outcome(name: str, bins: pd.DataFrame, outcome: str) -> Panel:
    """Draw the outcome by a column.

    Args:
        name: of the column.
        bins: its rows of ``bins.csv``.
        outcome: its name.
    """
    chosen = bins.iloc[formats.natural_order(bins["label"].tolist())[:MOST_LEVELS_DRAWN]]
    is_number = bool(np.isfinite(bins["at"]).all())
    if is_number:
        chosen = bins.sort_values("at")
    at = chosen["at"].to_numpy() if is_number else np.arange(len(chosen), dtype=float)
    has_intervals = bool(np.isfinite(chosen["interval_low"]).all())
    bands = [(chosen["low"].to_numpy(), chosen["high"].to_numpy())]
    if has_intervals:
        bands.append((chosen["interval_low"].to_numpy(), chosen["interval_high"].to_numpy()))
    observed, predicted = chosen["observed"].to_numpy(), chosen["predicted"].to_numpy()

    def plot(axes: Axes) -> None:
        for low, high in bands:
            if is_number:
                axes.fill_between(at, low, high, color=series(0), alpha=0.22, linewidth=0)
            else:
                axes.bar(at, high - low, 0.6, low, color=series(0), alpha=0.22)
        if is_number:
            axes.plot(at, predicted, color=series(0), linewidth=1.8)
        else:
            axes.hlines(predicted, at - 0.3, at + 0.3, color=series(0), linewidth=1.8)
            axes.set_xticks(at, [_shortened(str(label)) for label in chosen["label"]])
            if len(at) > MOST_UPRIGHT:
                axes.tick_params("x", rotation=35)
        if has_intervals:
            axes.vlines(at, chosen["middle_low"], chosen["middle_high"], color=series(3), linewidth=1.2)
        for x, y, label, fitted in zip(at, observed, chosen["label"], predicted, strict=True):
            text = f"{name} {label}: mean {formats.real(y, 3)} observed, {formats.real(fitted, 3)} fitted"
            axes.plot([x], [y], color=series(3), marker="o", markersize=4.5, linewidth=0, gid=tip(text))
        axes.set_xlabel(name)
        axes.set_ylabel(outcome)

    left_out = len(bins) - len(chosen)
    note = f"{name} ranges from {_range(chosen)} in the data." if is_number else ""
    note += f"{formats.count(left_out)} more level{' is' if left_out == 1 else 's are'} not drawn." if left_out else ""
    slug = "".join(c if c.isalnum() else "-" for c in name)
    label = f"{outcome} by {name}: observed and fitted means, with bands{' and the middle 90% of outcomes' if has_intervals else ''}"
    return draw(f"outcome-by-{slug}", plot, size=(340, 220), label=label, title=f"{outcome} by {name}", note=note)


def _range(chosen: pd.DataFrame) -> str:
    """Return the range of the values, from the labels of the first and the last bin."""
    labels = [str(label) for label in chosen["label"]]
    return f"{labels[0].split(' to ')[0]} to {labels[-1].split(' to ')[-1]}".replace("-", "\N{MINUS SIGN}")


def _shortened(text: str, most: int = 14) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
