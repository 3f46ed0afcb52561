"""Show predictive checks: a section of the page and a cell of the index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import zarr
from matplotlib.axes import Axes

from bayesmesh.analyses.predictive_checks.quantities import LEVEL
from bayesmesh.errors import StoreError
from bayesmesh.figures import formats
from bayesmesh.figures.canvas import Panel, draw, series
from bayesmesh.figures.documents import read_table
from bayesmesh.figures.sections import KeyNumber, Section, render
from bayesmesh.store.arrays import open_group, read_part

NUMBERS = ("observed", "simulated_mean", "low", "high", "p_value")

MOST_PANELS = 6


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None if nothing was checked.

    Raises:
        StoreError: a file is damaged.
    """
    table = read_checks(files["checks.csv"])
    if table is None:
        return None
    simulated = open_group(files["quantities.zarr"]).get("simulated")
    if not isinstance(simulated, zarr.Array) or simulated.shape[1:] != (len(table),):
        raise StoreError(f"{files['quantities.zarr']}: does not fit {files['checks.csv']}", "run the analysis again")
    values, missed = read_part(simulated), differing(table)
    order = np.argsort(table["p_value"], kind="stable")[:MOST_PANELS]
    body = render(
        Path(__file__).with_name("section.html"),
        sentence=sentence(table),
        rows=[(row, row["quantity"] in missed) for row in table.to_dict("records")],
        panels=[draw_quantity(table.iloc[i], values[:, i]) for i in sorted(order)],
    )
    number = KeyNumber(
        "Predictive checks missed", f"{len(missed)} of {len(table)}", ", ".join(missed), "warn" if missed else ""
    )
    return Section(body, [number])


def describe(files: Mapping[str, Path]) -> str:
    """Return the quantities that differ, as text; empty if nothing was checked."""
    table = read_checks(files["checks.csv"])
    if table is None:
        return ""
    missed = differing(table)
    return f"predictive checks missed: {', '.join(missed)}" if missed else ""


def read_checks(path: Path) -> pd.DataFrame | None:
    """Return the checks; None if the file does not exist.

    Raises:
        StoreError: the file is damaged.
    """
    return read_table(path, texts=("quantity",), numbers=NUMBERS) if path.exists() else None


def differing(table: pd.DataFrame) -> list[str]:
    """Return the quantities that differ, at a level that holds for all of them together."""
    return [str(name) for name in table.loc[table["p_value"] < LEVEL / len(table), "quantity"]]


def sentence(table: pd.DataFrame) -> str:
    """Return what the checks say."""
    missed = table[table["quantity"].isin(differing(table))]
    if missed.empty:
        return f"Outcomes simulated from the posterior resemble the observed ones in all {len(table)} quantities."
    parts = [
        f"{row['quantity']} {formats.real(row['observed'])}, but {formats.real(row['low'])} to {formats.real(row['high'])}"
        for row in missed.to_dict("records")
    ]
    return (
        f"The model does not produce outcomes like the observed ones. Observed, and 95% of the simulated: {'; '.join(parts)}. "
        "Predictions that depend on this are wrong."
    )


def draw_quantity(row: pd.Series, values: np.ndarray) -> Panel:
    """Draw the simulated values of a quantity and the observed one."""
    name, observed = str(row["quantity"]), float(row["observed"])

    def plot(axes: Axes) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:
            axes.hist(finite, bins=min(40, max(1, len(np.unique(finite)))), color=series(0), alpha=0.6)
        axes.axvline(observed, color=series(3), linewidth=1.8)
        axes.set_yticks([])

    words = f"{name}: observed {observed:.4g}, simulated {row['low']:.4g} to {row['high']:.4g}"
    slug = "".join(c if c.isalnum() else "-" for c in name)
    return draw(f"check-{slug}", plot, size=(260, 150), label=words, title=name.capitalize())
