"""What counts as a finding, and under which heading."""

from __future__ import annotations

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.learned.choice import choose_findings

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
    findings, others = choose_findings([*listed, *latents], {})
    assert [(each.heading, {item.variable for item in each.coordinates}) for each in findings] == [
        ("", {"slope", "sd"}),
        ("logits", {"logits"}),
    ]
    assert {item.variable for item in others} == {"log_density", "weights"}
