"""Draw panels of benchmarks: one line per contender, both axes logarithmic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.figures import formats
from bayesmesh.figures.canvas import Panel, draw, log_axis, series

_STYLE = Path(__file__).resolve().parents[2] / "report" / "templates" / "style.css"


class Figure(NamedTuple):
    """Specification of a panel.

    Attributes:
        stem: stem of its file.
        title: heading.
        x: column of the horizontal axis.
        y: column of the vertical axis.
        labels: labels of both axes, with units.
        where: column -> text of the rows to show.
    """

    stem: str
    title: str
    x: str
    y: str
    labels: tuple[str, str]
    where: Mapping[str, str] = {}


_OURS = "ours"

_SWEEPS = {"samples": "samples of each of 1,000 chains", "chains": "chains of 1,000 samples each"}
_MEASURES = (
    ("metropolis", "Time against", "median_s", "seconds"),
    ("metropolis-compiled", "Time with compilation, against", "with_compile_s", "seconds"),
    ("metropolis-memory", "Peak memory against", "peak_mib", "MiB"),
)

FIGURES: dict[str, tuple[Figure, ...]] = {
    "metropolis": tuple(
        Figure(f"{stem}-{sweep}", f"{title} {sweep}", sweep, column, (label, unit), {"arm": sweep})
        for stem, title, column, unit in _MEASURES
        for sweep, label in _SWEEPS.items()
    ),
    "compile_scaling": (
        Figure("compile_scaling", "Compile time against points", "n", "compile_s", ("points of the grid", "seconds")),
    ),
}
"""Benchmark -> its panels; others have only tables."""


def draw_lines(figure: Figure, lines: Mapping[str, Sequence[tuple[float, float]]], positions: Sequence[str]) -> Panel:
    """Draw a panel.

    Args:
        figure: its specification.
        lines: name -> measured points, by x.
        positions: all names of the page, so that a name has the same colour in every panel.
    """

    def plot(axes: Any) -> None:
        for name, points in lines.items():
            colour = series(positions.index(name))
            width = 2.8 if name == _OURS else 1.4
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3.5, linewidth=width, label=name)
        x, y = figure.labels
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        log_axis(axes.xaxis, formats.count)
        log_axis(axes.yaxis, lambda value: formats.real(value, 2))
        axes.legend(fontsize=8, frameon=False)

    label = f"{figure.title}: {', '.join(lines)}"
    return draw(figure.stem, plot, size=(480, 330), label=label, title=figure.title)


def standalone(panel: Panel) -> str:
    """Return the panel as a standalone document, with the colours of a light page."""
    css = _STYLE.read_text(encoding="utf-8")
    light = css[css.index(":root") : css.index("}") + 1]
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" width="{panel.width}"'
    styled = f"<style>{light} svg {{ background: var(--surface); }}</style>"
    body = re.sub(r"<svg ([^>]*)>", lambda found: f"{opened} {found[1]}>{styled}", str(panel.svg), count=1)
    return body + "\n"
