"""Show effects: a figure of comparisons and slopes, and the first lines of the table."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

from markupsafe import Markup, escape
from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import MUTED, Panel, draw, series, tip
from bayesmesh.analyses.figures.sections import Section, html_panels, html_table
from bayesmesh.analyses.options import EffectsOptions
from bayesmesh.errors import StoreError

MOST_LINES = 40
"""Lines of the table on the page."""

_NUMBERS = ("mean", "sd", "low", "high", "mcse_mean")


def build_section(path: Path, options: EffectsOptions) -> Section:
    """Return the section.

    Args:
        path: the table.
        options: with which it was made.

    Raises:
        StoreError: the table is damaged.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = list(itertools.islice(reader, MOST_LINES))
        num_lines = len(lines) + sum(1 for _ in reader)
    try:
        numbers = [{name: float(line[name]) for name in _NUMBERS} for line in lines]
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path}: not a table of effects: {error}", "delete it and run the analysis again") from error
    texts = [{k: v for k, v in line.items() if k not in _NUMBERS} for line in lines]
    used = [name for name in (texts[0] if texts else ()) if any(text[name] for text in texts)]
    records = [{k: text[k] for k in used} | number for text, number in zip(texts, numbers, strict=True)]
    unit = (
        "the expected outcome, or the probability of the level"
        if options.scale == "outcome"
        else "the linear predictor"
    )
    over = "at typical values" if (options.rows or (options.at and "typical")) == "typical" else "averaged over rows" if options.average else "for each row"  # fmt: skip
    note = f"Effects on {unit}, {over}: means, standard deviations and {formats.share(options.interval, 0)} intervals over the draws. mcse_mean is the Monte Carlo standard error of the mean."  # fmt: skip
    if num_lines > len(lines):
        note += f" The first {len(lines)} of {formats.count(num_lines)} lines; all are in effects/{path.name}."
    kinds = {text["quantity"] for text in texts}
    figure = html_panels(_forest(texts, numbers)) if len(kinds) == 1 and len(lines) > 1 else Markup("")
    table = html_table(records, "Effects") if records else Markup("")
    return Section(figure + table + Markup("<p class='note'>{}</p>").format(escape(note)))


def _forest(texts: list[dict[str, str]], numbers: list[dict[str, float]]) -> Panel:
    """Draw one interval a line, the first at the top."""
    kind = texts[0]["quantity"]
    names = [", ".join(filter(None, (v for k, v in text.items() if k != "quantity"))) for text in texts]
    none = {"prediction": None, "ratio": 1.0, "odds_ratio": 1.0}.get(kind, 0.0)

    def plot(axes: Axes) -> None:
        if none is not None:
            axes.axvline(none, color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        for place, (name, each) in enumerate(zip(names, numbers, strict=True)):
            mean, low, high = map(formats.real, (each["mean"], each["low"], each["high"]))
            text = tip(f"{name}: mean {mean}, interval {low} to {high}")
            axes.hlines(-place, each["low"], each["high"], color=series(0), linewidth=2, gid=text)
            axes.plot([each["mean"]], [-place], color=series(0), marker="o", markersize=4, gid=text)
        axes.set_yticks([-n for n in range(len(names))], [formats.shortened(name, 40) for name in names])
        axes.set_ylim(-len(names) + 0.4, 0.6)
        axes.grid(axis="y", visible=False)

    return draw(
        "effects", plot, size=(480, 46 + 17 * len(names)), label=f"Intervals of effects: {kind.replace('_', ' ')}"
    )
