"""Read quantities of several experiments and show them side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bayesmesh.analyses.figures import formats
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.report.diagnostics_tables import Coordinate, Coordinates, read_summary
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.choice import choose_findings
from bayesmesh.store.layout import ExperimentLayout

MOST_EXPERIMENTS = 6
"""Largest number of experiments side by side; for each one, the summary must be read."""

MOST_SHARED = 40
"""Largest number of quantities side by side."""


class Shared(NamedTuple):
    """Quantities that at least two experiments have.

    Attributes:
        verdicts: verdict on each experiment, in order.
        rows: label -> for each experiment, the mean with its error, and the interval; empty texts if the experiment
            lacks the quantity.
        num_left_out: number of further quantities that are not shown.
    """

    verdicts: Sequence[str]
    rows: Mapping[str, Sequence[tuple[str, str]]]
    num_left_out: int


def read_coordinates(layout: ExperimentLayout) -> Coordinates:
    """Return the rows of an experiment's ``summary.csv``.

    Raises:
        StoreError: verdict or summary is missing or damaged.
    """
    return read_summary(layout.summary, read_verdict(layout.verdict).num_coordinates.summaries)


def by_label(coordinates: Coordinates) -> dict[str, Coordinate]:
    """Return label -> coordinate: the first, which is the summary where a latent has the same name."""
    found: dict[str, Coordinate] = {}
    for each in coordinates:
        found.setdefault(each.label, each)
    return found


def quantity_texts(quantity: Coordinate | None, scales: Mapping[str, float]) -> tuple[str, str]:
    """Return the mean with its Monte Carlo standard error, and the interval, as text.

    Args:
        quantity: the quantity, in the unit of ``summary.csv``; None if the experiment lacks it.
        scales: latent or summary -> factor from the unit of ``summary.csv`` to that of the experiment's own page.
    """
    if quantity is None:
        return formats.NOT_RECORDED, ""
    shown = quantity.scaled(scales.get(quantity.variable, 1.0))
    return (
        f"{formats.real(shown.mean)} ± {formats.real(shown.mcse_mean, 2)}",
        f"{formats.real(shown.q5)} to {formats.real(shown.q95)}",
    )


def read_shared(layouts: Sequence[ExperimentLayout]) -> Shared | None:
    """Return the findings that at least two experiments have in common, side by side.

    Args:
        layouts: files of the experiments.

    Returns:
        The findings, in the units of the experiments' own pages. None if an experiment lacks verdict or posterior, if there are
        more than `MOST_EXPERIMENTS`, or if no two of them have a finding in common.

    Raises:
        StoreError: a file of an experiment is damaged.
    """
    ready = [layout for layout in layouts if layout.verdict.exists() and layout.posterior.exists()]
    if len(ready) < len(layouts) or len(layouts) > MOST_EXPERIMENTS:
        return None
    tables = [read_coordinates(layout) for layout in ready]
    known = [by_label(coordinates) for coordinates in tables]
    readers = [DrawReader(layout.posterior) for layout in ready]
    labels: dict[str, int] = {}
    for reader, coordinates in zip(readers, tables, strict=True):
        findings, _ = choose_findings(coordinates, reader.attributes)
        for label in dict.fromkeys(label for each in findings for label in each.coordinates.labels()):
            labels[label] = labels.get(label, 0) + 1
    common = [label for label, count in labels.items() if count > 1]
    rows = {
        label: [
            quantity_texts(of[label], reader.description.scales) if label in of else ("", "")
            for reader, of in zip(readers, known, strict=True)
        ]
        for label in common[:MOST_SHARED]
    }
    verdicts = [read_verdict(layout.verdict).verdict for layout in ready]
    return Shared(verdicts, rows, len(common) - len(rows)) if rows else None
