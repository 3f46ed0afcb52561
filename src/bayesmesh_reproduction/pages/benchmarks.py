"""Write the page of benchmarks from their tables: ratios, all rows, and panels with one line per contender."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import Panel, draw, log_axis, series
from bayesmesh.analyses.figures.documents import Row, read_csv
from bayesmesh.files import write_text
from bayesmesh.report.rendering import TEMPLATES as OF_REPORT
from bayesmesh.report.rendering import render
from bayesmesh_reproduction.layout import BenchmarkLayout
from bayesmesh_reproduction.pages import TEMPLATES

_STYLE = OF_REPORT / "style.css"

RATIO_TO = "ratio to "
"""Prefix of ratios among the metrics of the history; the other contender follows."""

_HIDDEN = {"min_s", "max_s", "rounds", "message", "measured_at", "machine", "versions", "keeps_means"}
"""Columns that the page shows elsewhere or omits; the file has all."""

_HEADINGS = {
    "median_s": "Seconds", "peak_mib": "Peak memory, MiB", "compile_s": "Compile, s", "with_compile_s": "With compile, s",
    "steps_per_s": "Steps per second", "ess_per_s": "ESS per second", "ess": "ESS",
}  # fmt: skip


Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Name of a contender -> its points, by x."""


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


class Section(NamedTuple):
    """A benchmark on the page; cells are text.

    Attributes:
        name: name of the benchmark and of its files.
        about: description of the measurement.
        columns: headings of the table, in the order of cells.
        rows: cells, and whether the row has a time.
        ratios: case, contender, ratio, baseline, spread, previous ratio on the same machine, verdict.
        panels: its figures, by the stem of their files; empty ones are left out.
        measured_at: time of the run.
        machine: machine of the run.
        versions: versions of the packages.
    """

    name: str
    about: str
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], bool]]
    ratios: Sequence[Sequence[str]]
    panels: Mapping[str, Panel]
    measured_at: str
    machine: str
    versions: str


def write_benchmark_page(results: Path, benchmarks: Iterable[tuple[str, str]]) -> Path:
    """Write ``benchmarks/index.html`` and the figures beside it.

    Args:
        results: folder of results.
        benchmarks: name -> description; benchmarks without a table are left out.

    Returns:
        The path of the page, which is replaced atomically.

    Raises:
        StoreError: a table is damaged.
    """
    layout = BenchmarkLayout(results)
    sections = [read_section(layout, name, about) for name, about in benchmarks if layout.table(name).exists()]
    write_text(layout.page, render("benchmarks.html", TEMPLATES, title="Benchmarks", sections=sections))
    for section in sections:
        for stem, panel in section.panels.items():
            write_text(layout.figure(stem), standalone(panel))
    return layout.page


def read_section(layout: BenchmarkLayout, name: str, about: str) -> Section:
    """Return the content of the page for a benchmark.

    Raises:
        StoreError: its table or its table of ratios is damaged.
    """
    rows = read_csv(layout.table(name), ("contender", "status", "median_s", "machine"))
    first = rows[0] if rows else Row(layout.table(name), 0, {})
    columns = [column for column in first.cells if column not in _HIDDEN]
    ratios = read_csv(layout.ratios(name), ("case", "contender", "against", "ratio")) if rows else []
    before = _ratios_before(layout.history, ratios[0]) if ratios else {}
    # All names of the table in order, so that each has the same colour in every panel.
    names = list(dict.fromkeys(row.text("contender") for row in rows))
    return Section(
        name=name,
        about=about,
        columns=[_HEADINGS.get(column, column.replace("_", " ")) for column in columns],
        rows=[([_cell(row, column) for column in columns], bool(row.text("median_s"))) for row in rows],
        ratios=[_ratio(row, before) for row in ratios],
        panels=_panels([(f, lines) for f in FIGURES.get(name, ()) if (lines := _lines(f, rows))], names),
        **{column: first.text(column) for column in ("measured_at", "machine", "versions")},
    )


def _cell(row: Row, column: str) -> str:
    text = row.text(column)
    if column == "status" and row.text("message"):
        return f"{text}: {row.text('message')}"
    try:
        number = float(text)
    except ValueError:
        return text
    if math.isnan(number):
        return ""
    spread = ""
    if column == "median_s" and row.count("rounds") > 1:
        spread = f" ({formats.real(row.number('min_s'), 3)} to {formats.real(row.number('max_s'), 3)})"
    is_count = number.is_integer() and abs(number) < 1e15
    return (formats.count(number) if is_count else formats.real(number, 4)) + spread


def _ratios_before(path: Path, newest: Row) -> dict[tuple[str, str, str], str]:
    """Return (case, contender, baseline) -> ratio of the previous run on the same machine.

    Damaged lines of the history are skipped.
    """
    if not path.exists():
        return {}
    found = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        for row in csv.DictReader(lines):
            same = all(row.get(column) == newest.text(column) for column in ("benchmark", "machine"))
            metric, is_newest = row.get("metric") or "", row.get("measured_at") == newest.text("measured_at")
            if same and not is_newest and metric.startswith(RATIO_TO):
                key = str(row["case"]), str(row["contender"]), metric.removeprefix(RATIO_TO)
                found[key] = str(row["value"])
    return found


def _ratio(row: Row, before: Mapping[tuple[str, str, str], str]) -> tuple[str, ...]:
    low, high = row.number("low"), row.number("high")
    spread = f"{formats.real(low, 3)} to {formats.real(high, 3)}" + (": no difference" if low <= 1 <= high else "")
    gate = f"{row.text('verdict')}: at least {formats.real(row.number('least'), 3)}" if row.text("verdict") else ""
    gate += f" ({row.text('reason')})" if row.text("reason") else ""
    ratio = f"× {formats.real(row.number('ratio'), 3)}"
    key = row.text("case"), row.text("contender"), row.text("against")
    earlier = f"× {formats.real(float(before[key]), 3)}" if key in before else ""
    return key[0], key[1], ratio, key[2], spread, earlier, gate


def _lines(figure: Figure, rows: Sequence[Row]) -> Lines:
    """Return the points with a number; a contender without any has no line."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if all(row.text(column) == value for column, value in figure.where.items()):
            point = row.number(figure.x), row.number(figure.y)
            if all(math.isfinite(number) and number > 0 for number in point):
                lines.setdefault(row.text("contender"), []).append(point)
    return {name: sorted(points) for name, points in lines.items()}


def _panels(found: Sequence[tuple[Figure, Lines]], names: Sequence[str]) -> dict[str, Panel]:
    """Draw the panels of a benchmark; those with one unit share their vertical axis, so that they can be compared."""
    heights: dict[str, list[float]] = {}
    for figure, lines in found:
        heights.setdefault(figure.labels[1], []).extend(y for points in lines.values() for _, y in points)
    limits = {unit: (min(values) / 1.3, max(values) * 1.3) for unit, values in heights.items()}
    return {f.stem: draw_lines(f, lines, names, limits[f.labels[1]]) for f, lines in found}


def draw_lines(figure: Figure, lines: Lines, positions: Sequence[str], limits: tuple[float, float]) -> Panel:
    """Draw a panel.

    Args:
        figure: its specification.
        lines: name -> measured points, by x.
        positions: all names of the page, so that a name has the same colour in every panel.
        limits: ends of the vertical axis.
    """

    def plot(axes: Any) -> None:
        for name, points in lines.items():
            colour = series(positions.index(name))
            width = 2.8 if name == _OURS else 1.4
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3.5, linewidth=width, label=name)
        x, y = figure.labels
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y, ylim=limits)
        log_axis(axes.xaxis, formats.count)
        log_axis(axes.yaxis)
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
