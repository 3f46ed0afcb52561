"""What counts as a finding, and under which heading."""

from __future__ import annotations

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.learned.learned_choice import choose_findings

NUMBERS = (0.5, 1.0, 0.02, 1.001, 900.0, 800.0)


def coordinates(name: str, size: int = 0, *, is_summary: bool = True, names: tuple[str, ...] = ()) -> list[Coordinate]:
    labels = names or ("",) * size
    return [
        Coordinate(name, (n,) if size or names else (), *NUMBERS, is_summary=is_summary, names=label)
        for n, label in enumerate(labels or [""])
    ]


def shown(name: str, heading: str, reference: float | None = None, apart: tuple[str, ...] = ()) -> dict[str, object]:
    return {"name": name, "heading": heading, "reference": reference, "apart": list(apart)}


def test_all_summaries_are_findings_where_the_model_says_nothing() -> None:
    listed = [*coordinates("slope"), *coordinates("logits", 20), *coordinates("log_density"), *coordinates("sd")]
    latents = coordinates("weights", 5, is_summary=False)
    findings, others = choose_findings([*listed, *latents], {})
    assert [(each.heading, {item.variable for item in each.coordinates}) for each in findings] == [
        ("", {"slope", "sd"}),
        ("logits", {"logits"}),
    ]
    assert {item.variable for item in others} == {"log_density", "weights"}


def test_latents_are_findings_where_there_are_no_summaries() -> None:
    found, others = choose_findings([*coordinates("log_density"), *coordinates("z", 3, is_summary=False)], {})
    assert [item.label for item in found[0].coordinates] == ["z[0]", "z[1]", "z[2]"]
    assert [item.variable for item in others] == ["log_density"]


def test_a_model_chooses_the_order_and_neighbours_with_one_heading_share_a_table() -> None:
    listed = [
        *coordinates("sigma"), *coordinates("b_age"), *coordinates("intercept_at_zero"),
        *coordinates("sigma", is_summary=False), *coordinates("effects", 3, is_summary=False),
    ]  # fmt: skip
    declared = [
        shown("intercept_at_zero", "Coefficients"), shown("b_age", "Coefficients", 0.0), shown("sigma", "Noise"),
        shown("effects", "Effects", 0.0), shown("absent", "Nothing"),
    ]  # fmt: skip
    findings, others = choose_findings(listed, {"shown": declared})
    assert [each.heading for each in findings] == ["Coefficients", "Noise", "Effects"]
    assert [item.variable for item in findings[0].coordinates] == ["intercept_at_zero", "b_age"]
    assert findings[0].references == (None, 0.0)
    assert findings[1].coordinates[0].is_summary, "not the latent of the same name"
    assert [(item.variable, item.is_summary) for item in others] == [("sigma", False)]


def test_neighbours_that_are_compared_with_different_values_are_told_apart() -> None:
    listed = [*coordinates("log_odds"), *coordinates("sd"), *coordinates("odds")]
    declared = [shown("log_odds", "Effects", 0.0), shown("sd", "Effects"), shown("odds", "Effects", 1.0)]
    findings, _ = choose_findings(listed, {"shown": declared})
    assert [each.references for each in findings] == [(0.0, None), (1.0,)]


def test_an_entry_that_is_apart_has_no_reference() -> None:
    listed = coordinates("b", names=("intercept", "age", "intercept,elm"))
    findings, _ = choose_findings(listed, {"shown": [shown("b", "Coefficients", 0.0, ("intercept",))]})
    assert findings[0].references == (None, 0.0, None)


def test_names_leave_out_what_all_share() -> None:
    def called(*items: Coordinate) -> list[str]:
        finding = choose_findings(list(items), {})[0][0]
        return [finding.names[item.label] for item in items]

    assert called(*coordinates("effects", names=("a,intercept", "b,intercept"))) == ["a", "b"]
    assert called(*coordinates("effects", names=("a,intercept", "a,age"))) == ["a,intercept", "a,age"]
    assert called(*coordinates("z", 2)) == ["z[0]", "z[1]"], "a number alone is no name"
    assert called(*coordinates("z", 1), *coordinates("sd")) == ["z[0]", "sd"]


def test_each_kind_of_group_effect_has_its_own_table() -> None:
    names = ("a,intercept", "a,x", "b, c,intercept", "b, c,x")
    listed = coordinates("effects_g", names=names, is_summary=False)
    declared = [shown("effects_g", "Effects of g: {entry}, in log odds", 0.0)]
    findings, _ = choose_findings(listed, {"shown": declared})
    assert [each.heading for each in findings] == [
        f"Effects of g: {entry}, in log odds" for entry in ("intercept", "x")
    ]
    assert list(findings[1].names.values()) == ["a", "b, c"]
