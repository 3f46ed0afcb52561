"""The mark for the fit of the model: what checks found, what follows, and what to try."""

from __future__ import annotations

import math

import pytest

from bayesmesh.figures.figure_fit_check import Aspect, FitCheck
from bayesmesh.report.report_fit_mark import mark_fit
from bayesmesh.store.stored_description import ModelDescription

NONE = ModelDescription()
POISSON = ModelDescription(remedies={"narrow": "Try `family: negative_binomial`."})
NARROW = FitCheck(
    "predictive checks", "fail", "Variance / mean 8 observed.", {"narrow": 9.0}, frozenset({"bias", "tails"})
)
BOTH = ("predictive_checks", "loo")


def test_unasked_checks_are_named_with_their_keys() -> None:
    mark = mark_fit([], ["averaging"], NONE)
    assert (mark.state, mark.badge) == ("none", "not checked")
    assert "Add `loo: {}` and `predictive_checks: {}` to the experiment" in mark.lead
    assert mark_fit([], ["loo"], NONE).lead == "The requested checks have no results."


def test_passed_checks_refute_nothing_and_more_can_be_asked() -> None:
    passed = FitCheck("predictive checks", "pass")
    assert mark_fit([passed], BOTH, NONE).lead == "No check refutes the model (predictive checks)."
    mark = mark_fit([passed], ["predictive_checks"], NONE)
    assert (mark.state, mark.badge, mark.caveat) == ("pass", "✓ not refuted", "")
    assert mark.lead.endswith("Add `loo: {}` to check more.")


def test_intervals_that_are_too_narrow_are_told_from_a_bias() -> None:
    mark = mark_fit([NARROW, FitCheck("Pareto k", "pass")], BOTH, POISSON)
    assert (mark.state, mark.badge) == ("fail", "✗ refuted")
    assert mark.lead == "The data refute the model (predictive checks)."
    assert mark.findings == ["Variance / mean 8 observed."]
    assert "too narrow" in mark.consequences[0]
    assert "found no bias" in mark.consequences[1]
    assert mark.remedies == ["Try `family: negative_binomial`."]
    assert mark.caveat == " ".join(mark.consequences)


def test_a_bias_that_another_check_finds_is_not_cleared() -> None:
    biased = FitCheck("LOO-PIT", "fail", "Too large.", {"bias": 5.0})
    mark = mark_fit([NARROW, biased], BOTH, POISSON)
    assert "biased" in mark.consequences[0]
    assert not any("found no bias" in each for each in mark.consequences)
    assert len(mark.remedies) == 2


@pytest.mark.parametrize("asked", [BOTH, ["loo"]])
def test_doubts_are_no_refutation(asked: list[str]) -> None:
    mark = mark_fit([FitCheck("Pareto k", "warn", "High.")], asked, NONE)
    assert (mark.state, mark.badge, mark.caveat) == ("warn", "! doubtful", "")
    assert ("Add `predictive_checks: {}`" in mark.lead) == (asked == ["loo"])


def test_how_much_too_narrow_intervals_are_is_said_where_it_was_measured() -> None:
    measured = FitCheck("LOO-PIT", "fail", "Too narrow.", {"narrow": 8.0}, spread=1.55)
    (first, *_), (unmeasured, *_) = (mark_fit([each], BOTH, NONE).consequences for each in (measured, NARROW))
    assert first.startswith("Outcomes scatter about 1.6 times as widely as the model allows.")
    assert first.endswith("if rows are independent, and wider still if rows come in groups.")
    assert unmeasured.startswith("Outcomes scatter more widely than the model allows.")
    assert unmeasured.endswith("likely too narrow.")
    wide = FitCheck("another check", "fail", "Too wide.", {"wide": 9.0}, spread=0.6)
    assert mark_fit([wide, measured], BOTH, NONE).widening == 1.55, "of the check that found them too narrow"


def test_checks_that_the_configuration_forbids_are_not_proposed() -> None:
    assert (
        "Add `predictive_checks: {}` to the experiment: this check uses"
        in mark_fit([], [], NONE, ["predictive_checks"]).lead
    )
    assert "none is possible" in mark_fit([], [], NONE, []).lead
    assert (
        "Add"
        not in mark_fit(
            [FitCheck("predictive checks", "pass")], ["predictive_checks"], NONE, ["predictive_checks"]
        ).lead
    )


REMEDIES = ModelDescription(
    remedies={"narrow": "Try `family: wider`.", "zeros": "Try `family: wider`, too.", "tails": "Try `family: heavier`."}
)


@pytest.mark.parametrize(
    ("refuted", "terms", "advice"),
    [
        ({"narrow": 20.0, "tails": 30.0}, {}, ["Try `family: heavier`.", "Try `family: wider`."]),
        ({"narrow": 20.0, "zeros": 30.0}, {}, ["Try `family: wider`, too."]),
        ({"narrow": 20.0, "bias": 6.0}, {"(1 | g)": 6.0}, ["Add `(1 | g)` to the formula: residuals follow it.", "Try `family: wider`."]),
        ({"bias": 9.0}, {"I(x^2)": 9.0, "x:z": 5.0, "w": 4.0}, ["Add `I(x^2)` to the formula: residuals follow it.", "Add `w` to the formula: residuals follow it."]),
        ({"binary": math.inf, "wide": 9.0}, {}, ["Use a Bernoulli distribution, whose outcomes are 0 or 1."]),
        ({"skewed": 9.0, "tails": 40.0}, {"I(x^2)": 3.0}, ["Use the log of the outcome, or a distribution of positive numbers such as the gamma distribution.", "Add `I(x^2)` to the formula: residuals follow it."]),
    ],
)  # fmt: skip
def test_the_best_advice_comes_first(refuted: dict[Aspect, float], terms: dict[str, float], advice: list[str]) -> None:
    check = FitCheck("predictive checks", "fail", "They differ.", refuted, terms=terms)
    assert mark_fit([check], BOTH, REMEDIES).remedies == advice
