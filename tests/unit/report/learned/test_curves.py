"""Figures of the expected outcome, and the table of the same numbers."""

from __future__ import annotations

import re

from bayesmesh.report.learned.curves import draw_curves


def _series(label: str, mean: list[float]) -> dict[str, object]:
    return {"label": label, "mean": mean, "low": [x - 0.125 for x in mean], "high": [x + 0.125 for x in mean]}


def test_the_table_has_every_number_of_the_figures() -> None:
    curves = [
        {"column": "time", "at": [0.0, 2.5], "y": "survival", "series": [_series("model", [1.0, 0.25]), _series("Kaplan-Meier", [1.0, 0.5])]},
        {"column": "site", "at": ["elm", "oak"], "y": "growth", "series": [_series("", [3.0, 4.0])]},
    ]  # fmt: skip
    panels, table = draw_curves(curves)
    assert len(panels) == 2
    assert table.count("<tr>") == 1 + 2 * 2 + 2
    for row in (
        ("time", "2.500", "survival", "model", "0.2500", "0.1250", "0.3750"),
        ("time", "0", "survival", "Kaplan-Meier", "1.000", "0.8750", "1.125"),
        ("site", "oak", "growth", "", "4.000", "3.875", "4.125"),
    ):
        assert [*row] in [_cells(line) for line in table.split("<tr>")]


def _cells(line: str) -> list[str]:
    """Return the texts of the cells of a row."""
    return re.findall(r"<t[hd][^>]*>([^<]*)<", line)


def test_a_posterior_without_curves_has_neither() -> None:
    assert draw_curves(None) == ([], "")
