"""Draw the expected outcome along each predictor, as `bayesmesh.analyses.effects.curves` describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import Panel, draw, series, tip
from bayesmesh.analyses.figures.sections import html_table

_OFFSET = 0.12
"""Distance between the points of several series at a level."""


def draw_curves(described: object) -> tuple[list[Panel], Markup]:
    """Return a panel for each predictor, and a table of the same numbers; none for a posterior that describes none."""
    found: Sequence[Mapping[str, Any]] = described if isinstance(described, list) else []
    records = [
        {"along": curve["column"], "value": at if isinstance(at, str) else formats.real(at), "expected": curve["y"],
         "line": each["label"], "mean": mean, "5%": low, "95%": high}
        for curve in found
        for each in curve["series"]
        for at, mean, low, high in zip(curve["at"], each["mean"], each["low"], each["high"], strict=True)
    ]  # fmt: skip
    table = html_table(records, "The expected outcome along each predictor") if records else Markup("")
    return [_draw(f"effect-{n}", each) for n, each in enumerate(found)], table


def _draw(name: str, curve: Mapping[str, Any]) -> Panel:
    is_category = isinstance(curve["at"][0], str)
    number = len(curve["series"])

    def plot(axes: Axes) -> None:
        for n, each in enumerate(curve["series"]):
            label = each["label"] or None
            if is_category:
                at = [place + _OFFSET * (n - (number - 1) / 2) for place in range(len(curve["at"]))]
                for place, level, mean, low, high in zip(
                    at, curve["at"], each["mean"], each["low"], each["high"], strict=True
                ):
                    text = tip(_reading(level, each["label"], mean, low, high))
                    axes.vlines(place, low, high, color=series(n), linewidth=2, gid=text)
                    axes.plot([place], [mean], color=series(n), marker="o", markersize=4, linewidth=0, gid=text)
                axes.plot([], [], color=series(n), marker="o", linewidth=0, label=label)
            else:
                axes.fill_between(curve["at"], each["low"], each["high"], color=series(n), alpha=0.2, linewidth=0)
                text = tip(
                    _reading(curve["column"], each["label"], each["mean"][-1], each["low"][-1], each["high"][-1])
                )
                axes.plot(curve["at"], each["mean"], color=series(n), linewidth=1.6, label=label, gid=text)
        if is_category:
            axes.set_xticks(range(len(curve["at"])), [formats.shortened(each, 12) for each in curve["at"]])
            axes.set_xlim(-0.5, len(curve["at"]) - 0.5)
            if sum(map(len, curve["at"])) > 40:
                axes.tick_params(axis="x", rotation=60)
        if number > 1:
            axes.legend(fontsize=8, frameon=False)
        axes.set(xlabel=curve["column"], ylabel=curve["y"])

    label = f"{curve['y']} by {curve['column']}: mean and 90% interval"
    return draw(name, plot, size=(300, 200), label=label, note=curve.get("note", ""))


def _reading(at: str, label: str, mean: float, low: float, high: float) -> str:
    numbers = f"mean {formats.real(mean)}, 90% interval {formats.real(low)} to {formats.real(high)}"
    return f"{', '.join(filter(None, (at, label)))}: {numbers}"
