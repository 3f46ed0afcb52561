"""Show the sensitivity to prior and likelihood: a section of the page and a cell of the index."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.sections import KeyNumber, Section, html_table, render

THRESHOLD = 0.05
"""As in the analysis, which the page does not import."""

MOST_ROWS = 12
MOST_NAMED = 5


def build_section(path: Path) -> Section | None:
    """Build the section; None if nothing was computed.

    Raises:
        StoreError: the file is damaged.
    """
    if not path.exists():
        return None
    table = read_sensitivities(path)
    shown = table.sort_values("prior", ascending=False).head(MOST_ROWS)
    body = render(
        Path(__file__).with_name("section.html"),
        sentences=sentences(table),
        rows=html_table(shown, "Sensitivity to prior and likelihood"),
    )
    conflicts = diagnosed(table, "conflict")
    numbers = (
        [KeyNumber("Prior and data in conflict", str(len(conflicts)), _named(conflicts), "warn")] if conflicts else []
    )
    return Section(body, numbers)


def describe(path: Path) -> str:
    """Name the quantities for which prior and data are in conflict; empty if there are none."""
    conflicts = diagnosed(read_sensitivities(path), "conflict") if path.exists() else []
    return f"prior and data in conflict: {_named(conflicts)}" if conflicts else ""


def read_sensitivities(path: Path) -> pd.DataFrame:
    """Return the table of sensitivities.

    Raises:
        StoreError: the file is damaged.
    """
    return read_table(path, texts=("quantity",), numbers=("prior", "likelihood"))


def diagnosed(table: pd.DataFrame, word: str) -> list[str]:
    """Return the quantities with a diagnosis, ``conflict`` or ``weak data``, the most sensitive first."""
    is_prior, is_data = table["prior"] >= THRESHOLD, table["likelihood"] >= THRESHOLD
    chosen = table[is_prior & (is_data if word == "conflict" else ~is_data)]
    return [str(name) for name in chosen.sort_values("prior", ascending=False)["quantity"]]


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def sentences(table: pd.DataFrame) -> list[str]:
    """Return what the sensitivities say, in words."""
    known = table.dropna()
    if known.empty:
        return ["There are too few draws to tell how the posterior depends on prior and likelihood."]
    conflicts, weak = diagnosed(table, "conflict"), diagnosed(table, "weak data")
    said = []
    if conflicts:
        said.append(
            f"Prior and data are in conflict about {_named(conflicts)}, or the prior is narrow where the data are informative: the posterior "
            "moves if either counts more. Check that this prior says what is known."
        )
    if weak:
        said.append(
            f"The data say little about {_named(weak)}: the posterior follows the prior. That is not a mistake if the prior is intended, but "
            "conclusions about these quantities rest on it."
        )
    if not said:
        said.append(
            f"None of the {len(known)} quantities changes noticeably if the prior counts a little more or less: the data decide."
        )
    return said
