"""sensitivity: how much the posterior changes if the prior or the likelihood is given slightly more or less weight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


from bayesmesh.analyses.base import Analysis, Subject
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.sections import KeyNumber, Section, html_table, render
from bayesmesh.analyses.options import SensitivityOptions as Options


class Sensitivity(Analysis):
    """Power scaling of prior and likelihood."""

    pretty_name = "Sensitivity"
    outputs = ("sensitivity.csv",)
    message = "Scale prior and likelihood of {experiment} by powers"
    options: Options

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Recompute log prior and log likelihood of draws, weight them, and compare; return the counts as text."""
        from bayesmesh.analyses.sensitivity.power_scaling import scale_powers

        del others
        path = files["sensitivity.csv"]
        scale_powers(subject.bound, subject.posterior, self.options, path)
        table = read_sensitivities(path)
        conflicts, weak = (len(diagnosed(table, word)) for word in ("conflict", "weak data"))
        return f"{len(table)} quantities: {conflicts} with prior and data in conflict, {weak} that follow the prior"

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show the quantities that depend most on the prior, and what that means."""
        table = read_sensitivities(files["sensitivity.csv"])
        shown = table.sort_values("prior", ascending=False).head(MOST_ROWS)
        body = render(
            Path(__file__).with_name("section.html"),
            sentences=sentences(table),
            rows=html_table(shown, "Sensitivity to prior and likelihood"),
        )
        conflicts = diagnosed(table, "conflict")
        numbers = (
            [KeyNumber("Prior and data in conflict", str(len(conflicts)), _named(conflicts), "warn")]
            if conflicts
            else []
        )
        return Section(body, numbers)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Say whether prior and data are in conflict."""
        conflicts = diagnosed(read_sensitivities(files["sensitivity.csv"]), "conflict")
        return f"prior and data in conflict: {_named(conflicts)}" if conflicts else ""


THRESHOLD = 0.05
"""Value from which a quantity counts as sensitive (Kallioinen et al. 2024, section 3.4)."""

MOST_ROWS = 12
MOST_NAMED = 5


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
