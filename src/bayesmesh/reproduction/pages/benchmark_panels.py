"""Draw panels of benchmarks: one line per contender, both axes logarithmic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.figures import formats
from bayesmesh.figures.canvas import Panel, draw, log_axis, series

__all__ = ["FIGURES", "Figure", "draw_lines", "standalone"]

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
        series: column whose values are the lines.
    """

    stem: str
    title: str
    x: str
    y: str
    labels: tuple[str, str]
    where: Mapping[str, str] = {}
    series: str = "contender"


_SAMPLES, _CHAINS, _TIME = "samples of each of 1,000 chains", "chains of 1,000 samples each", "seconds"
_METROPOLIS, _OURS = "metropolis", "ours"

FIGURES: dict[str, tuple[Figure, ...]] = {
    _METROPOLIS: (
        Figure("metropolis-samples", "Time against samples", "samples", "median_s", (_SAMPLES, _TIME), {"arm": "samples"}),
        Figure("metropolis-chains", "Time against chains", "chains", "median_s", (_CHAINS, _TIME), {"arm": "chains"}),
        Figure(
            "metropolis-compiled-samples", "Time with compilation, against samples", "samples", "with_compile_s",
            (_SAMPLES, _TIME), {"arm": "samples"},
        ),
        Figure(
            "metropolis-compiled-chains", "Time with compilation, against chains", "chains", "with_compile_s",
            (_CHAINS, _TIME), {"arm": "chains"},
        ),
        Figure(
            "metropolis-memory-samples", "Peak memory against samples", "samples", "peak_mib",
            (_SAMPLES, "MiB"), {"arm": "samples"},
        ),
        Figure(
            "metropolis-memory-chains", "Peak memory against chains", "chains", "peak_mib",
            (_CHAINS, "MiB"), {"arm": "chains"},
        ),
    ),
    "compile_scaling": (
        Figure("compile_scaling", "Compile time against points", "n", "compile_s", ("points of the grid", _TIME)),
    ),
}  # fmt: skip
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
        axes.set_xscale("log")
        axes.set_yscale("log")
        log_axis(axes.xaxis, formats.count)
        log_axis(axes.yaxis, lambda value: formats.real(value, 2))
        axes.set_xlabel(figure.labels[0])
        axes.set_ylabel(figure.labels[1])
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
