"""Run a study and write its table and its figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import matplotlib
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bayesmesh.files import write_text
from bayesmesh_reproduction.layout import study_file
from bayesmesh_reproduction.studies.stopping import Setting, measure

_PANELS = (
    ("coverage", "coverage of the 90% interval of the mean", 0.9),
    ("bias_mean", "bias of the mean, in posterior sd", 0.0),
    ("bias_sd", "bias of the sd, relative", 0.0),
    ("mcse_over_error", "reported over actual error of the mean", 1.0),
)
_WAYS = (("rule", "stopped by the rule", -0.14, "#b5452c"), ("fixed", "fixed number of draws", 0.14, "#2f6690"))
"""How runs ended: its name in the table and in the legend, its place beside the line of a row, its colour."""


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
    write_text(table, pd.DataFrame(rows).to_csv(index=False))
    write_text(study_file(results, "stopping", "svg"), draw_stopping(rows))
    return f"{rows[0]['replications']} replications of {len(rows) // 4} rules and chains: {table}"


def draw_stopping(rows: Sequence[dict[str, Any]]) -> str:
    """Return the figure as SVG: each measure by chains, rule and quantity, with error bars of two standard errors."""
    table = pd.DataFrame(rows)
    table["place"] = table["chains"] + " · " + table["rule"] + " · " + table["quantity"]
    places = list(table["place"].unique())
    with matplotlib.rc_context({"svg.hashsalt": "stopping", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(15, 1.2 + 0.32 * len(places)), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        grid = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (measure_name, title, ideal) in zip(grid, _PANELS, strict=True):
            axes.axvline(ideal, color="#888888", linewidth=1)
            for ended, label, shift, colour in _WAYS:
                mine = table[table["ended"] == ended]
                at, spread = mine["place"].map(places.index) + shift, 2 * mine.get(f"{measure_name}_se", 0.0)
                axes.errorbar(mine[measure_name], at, xerr=spread, fmt="o", markersize=4, color=colour, label=label)
            axes.set_xlabel(title)
            axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        grid[0].set_yticks(range(len(places)), places)
        grid[0].invert_yaxis()
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        out = io.StringIO()
        canvas.print_svg(out, metadata={"Date": None})
    return out.getvalue()
