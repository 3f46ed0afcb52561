"""Show where divergences gather: a section of the page and a cell of the index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import MUTED, Panel, draw, series
from bayesmesh.analyses.figures.documents import read_csv, read_table
from bayesmesh.analyses.figures.sections import Section, html_table, render

LEVEL, TAIL = 0.01, 0.1
"""As in the analysis, which the page does not import."""

FEWEST = 5
"""Divergent draws from which it can be said that they do not gather."""

MOST_PAIRS, MOST_ROWS, MOST_NAMED = 3, 10, 3

ENDS = {"low": "is small", "high": "is large", "both": "is far from its middle on either side"}


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None if nothing was computed, or nothing diverged.

    Raises:
        StoreError: a file is damaged.
    """
    if not files["divergent.csv"].exists():
        return None
    table = read_places(files["divergent.csv"])
    if table.empty:
        return None
    pairs = read_csv(files["pairs.csv"], ("first", "second"))[:MOST_PAIRS]
    wanted = list(dict.fromkeys(row.text(end) for row in pairs for end in ("first", "second")))
    draws = read_table(files["draws.csv"], numbers=("diverging", *wanted))
    shown = table.drop(columns="num_divergent").head(MOST_ROWS)
    body = render(
        Path(__file__).with_name("section.html"),
        sentence=sentence(table),
        panels=[draw_pair(row.text("first"), row.text("second"), draws) for row in pairs],
        rows=html_table(shown, "Latents by how divergent draws lie along them"),
    )
    return Section(body)


def describe(files: Mapping[str, Path]) -> str:
    """Name the latent at which divergences gather most; empty if there is none."""
    table = read_places(files["divergent.csv"]) if files["divergent.csv"].exists() else pd.DataFrame()
    if table.empty or table.iloc[0]["p_value"] >= LEVEL:
        return ""
    return f"divergences where {table.iloc[0]['latent']} {ENDS[table.iloc[0]['end']]}"


def read_places(path: Path) -> pd.DataFrame:
    """Return the latents, the clearest first; empty for few divergences.

    Raises:
        StoreError: the file is damaged.
    """
    return read_table(path, texts=("latent", "end"), numbers=("share", "p_value", "num_divergent"))


def sentence(table: pd.DataFrame) -> str:
    """Return where divergences gather, in words."""
    number = formats.count(table.iloc[0]["num_divergent"])
    gathered = table[table["p_value"] < LEVEL]
    if gathered.empty and table.iloc[0]["num_divergent"] < FEWEST:
        is_one = table.iloc[0]["num_divergent"] == 1
        return (
            f"{number} draw{' is' if is_one else 's are'} divergent: too few to say whether divergences gather. "
            "The figures and the table show where they lie; if the posterior has a funnel there, draws are missing all the same."
        )
    if gathered.empty:
        return f"{number} draws are divergent. They do not gather along any latent: first try a smaller step size (a higher target acceptance)."
    parts = [
        f"{row['latent']} {ENDS[row['end']]} ({formats.share(row['share'], 0)} of them, but {formats.share(TAIL, 0)} of the other draws)"
        for row in gathered.head(MOST_NAMED).to_dict("records")
    ]
    return (
        f"{number} draws are divergent. They gather where {'; where '.join(parts)}. There the posterior is too narrow or too curved for the step size, and "
        "draws are missing: reparametrise what depends on this latent (non-centred, or on another scale), or give it a prior that keeps away from there."
    )


def draw_pair(first: str, second: str, draws: pd.DataFrame) -> Panel:
    """Draw two latents, divergent draws above the others."""
    is_divergent = draws["diverging"] > 0

    def plot(axes: Axes) -> None:
        others, own = draws[~is_divergent], draws[is_divergent]
        axes.plot(others[first], others[second], ".", color=MUTED, markersize=2, alpha=0.5)
        axes.plot(own[first], own[second], "o", color=series(3), markersize=3)
        axes.set_xlabel(first)
        axes.set_ylabel(second)

    words = f"{first} and {second}: {int(is_divergent.sum())} divergent draws and {int((~is_divergent).sum())} others"
    slug = "".join(c if c.isalnum() else "-" for c in f"{first}-{second}")
    return draw(f"divergent-{slug}", plot, size=(340, 280), label=words, title=f"{first} and {second}")
