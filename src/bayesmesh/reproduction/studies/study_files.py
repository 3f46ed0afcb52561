"""Run a study and write its table and its figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bayesmesh.figures.documents import render_csv
from bayesmesh.files import write_text
from bayesmesh.reproduction.studies.stopping import Setting, measure
from bayesmesh.store.layout import study_file

_PANELS = (
    ("coverage", "coverage of the 90% interval of the mean", 0.9),
    ("bias_mean", "bias of the mean, in posterior sd", 0.0),
    ("bias_sd", "bias of the sd, relative", 0.0),
    ("mcse_over_error", "reported over actual error of the mean", 1.0),
)
_COLOURS = {"rule": "#b5452c", "fixed": "#2f6690"}


def run_stopping(results: Path, setting: Setting | None = None) -> str:
    """Measure the cost of stopping by a rule; returns a line for the log.

    Args:
        results: folder of results; ``studies/stopping.csv`` and ``.svg`` are replaced.
        setting: size of the study; by default that of the documentation.
    """
    # The documentation quotes these numbers: on the CPU they are the same on every machine, up to rounding.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    rows = list(measure(setting or Setting()))
    table = study_file(results, "stopping", "csv")
    write_text(table, render_csv(list(rows[0]), [list(row.values()) for row in rows]))
    write_text(study_file(results, "stopping", "svg"), draw_stopping(rows))
    return f"{rows[0]['replications']} replications of {len(rows) // 4} rules and chains: {table}"


def draw_stopping(rows: Sequence[dict[str, Any]]) -> str:
    """Return the figure as SVG: each measure by chains, rule and quantity, with error bars of two standard errors."""
    places = list(dict.fromkeys((row["chains"], row["rule"], row["quantity"]) for row in rows))
    with matplotlib.rc_context({"svg.hashsalt": "stopping", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(15, 1.2 + 0.32 * len(places)), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        grid = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (measure_name, title, ideal) in zip(grid, _PANELS, strict=True):
            axes.axvline(ideal, color="#888888", linewidth=1)
            for ended, shift in (("rule", -0.14), ("fixed", 0.14)):
                mine = [row for row in rows if row["ended"] == ended]
                at = [places.index((row["chains"], row["rule"], row["quantity"])) + shift for row in mine]
                spread = [2 * row.get(f"{measure_name}_se", 0.0) for row in mine]
                axes.errorbar(
                    [row[measure_name] for row in mine], at, xerr=spread, fmt="o", markersize=4, color=_COLOURS[ended],
                    label="stopped by the rule" if ended == "rule" else "fixed number of draws",
                )  # fmt: skip
            axes.set_xlabel(title)
            axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        grid[0].set_yticks(range(len(places)), [" · ".join(place) for place in places])
        grid[0].invert_yaxis()
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        out = io.StringIO()
        canvas.print_svg(out, metadata={"Date": None})
    return out.getvalue()
