"""What counts as a finding, and under which heading."""

from __future__ import annotations

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.learned.choice import choose_findings
from bayesmesh.store.layout import SHOWN
from summary_rows import in_columns

NUMBERS = (0.5, 1.0, -1.1, 2.1, 0.02, 1.001, 900.0, 800.0)


def coordinates(name: str, size: int = 0, *, is_summary: bool = True, names: tuple[str, ...] = ()) -> list[Coordinate]:
    labels = names or ("",) * size
    return [
        Coordinate(name, (n,) if size or names else (), *NUMBERS, is_summary=is_summary, names=label)
        for n, label in enumerate(labels or [""])
    ]


def test_all_summaries_are_findings_where_the_model_says_nothing() -> None:
    listed = [*coordinates("slope"), *coordinates("logits", 20), *coordinates("log_density"), *coordinates("sd")]
    latents = coordinates("weights", 5, is_summary=False)
    findings, others = choose_findings(in_columns([*listed, *latents]), {})
    assert [(each.heading, {item.variable for item in each.coordinates}) for each in findings] == [
        ("", {"slope", "sd"}),
        ("logits", {"logits"}),
    ]
    assert {item.variable for item in others} == {"log_density", "weights"}


def test_a_heading_for_each_entry_joins_arrays_and_orders_numbered_levels() -> None:
    names = tuple(f"site {n},{entry}" for n in (1, 10, 2) for entry in ("intercept", "x"))
    listed = in_columns([*coordinates("effects", names=names), *coordinates("slope", names=("x", "z"))])
    shown = [
        {"name": "effects", "heading": "Effects: {entry}", "reference": 0.0, "apart": []},
        {"name": "slope", "heading": "Effects: x", "reference": 0.0, "apart": ["z"]},
    ]
    findings, others = choose_findings(listed, {SHOWN: shown}, {"slope": 2.0})
    assert [each.heading for each in findings] == ["Effects: intercept", "Effects: x"]
    intercepts, slopes = findings
    assert [intercepts.name(item) for item in intercepts.coordinates] == ["site 1", "site 2", "site 10"]
    assert [slopes.name(item) for item in slopes.coordinates][-2:] == ["slope[x]", "slope[z]"]
    assert slopes.shares_axis.tolist() == [True, True, True, True, False]
    assert slopes.coordinates.numbers["mean"].tolist() == [0.5, 0.5, 0.5, 1.0, 1.0]
    assert not len(others)
    # Other reference values, another finding.
    shown[1]["reference"] = 1.0
    assert len(choose_findings(listed, {SHOWN: shown})[0]) == 3
