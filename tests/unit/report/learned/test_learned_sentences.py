"""Sentences follow from intervals, and say no more than these."""

from __future__ import annotations

import dataclasses
import math

import pytest

from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.learned.learned_estimates import Estimate
from bayesmesh.report.learned.learned_sentences import say_sides, say_truth, say_unsettled, trust


def estimate(name: str, low: float, high: float, reference: float | None = 0.0, truth: float = math.nan) -> Estimate:
    mean = (low + high) / 2
    item = Coordinate("b", (0,), mean, 1.0, 0.01, 1.0, 900.0, 900.0, names=name)
    return Estimate(item, low, high, 0.1, 0.1, reference, truth)


@pytest.mark.parametrize(
    ("intervals", "said"),
    [
        ([("age", -1, 1, None)], ""),
        ([("age", math.nan, math.nan)], ""),
        ([("age", -1, 1)], "The 90% interval of age contains 0."),
        ([("age", -1, 1), ("rain", -2, 1)], "None of the 2 intervals (90%) excludes 0."),
        ([("age", 0.5, 1)], "The 90% interval of age lies above 0."),
        (
            [("age", 0.5, 1), ("rain", -9, -8), ("elm", -1, 1), ("oak", 4, 5), ("base", 1, 2, None)],
            "90% intervals: those of oak and age lie above 0, that of rain lies below 0, 1 contains it. They are not adjusted for multiple comparisons.",
        ),
        (
            [(f"level {n}", 1, 2) for n in range(9)] + [("last", -1, 1), ("other", -1, 1)],
            "90% intervals: 9 lie above 0, 2 contain it. They are not adjusted for multiple comparisons.",
        ),
    ],
)
def test_sides(intervals: list[tuple[str, float, float]], said: str) -> None:
    assert say_sides([estimate(*each) for each in intervals], {f"b[{name}]": name for name, *_ in intervals}) == said


def test_coverage_of_the_truth_needs_many_intervals() -> None:
    inside, outside = estimate("a", 0, 1, truth=0.5), estimate("b", 0, 1, truth=1.5)
    assert say_truth([estimate("a", 0, 1)] * 30) == say_truth([inside, outside]) == ""
    assert say_truth([inside, outside] * 10).startswith("10 of 20 intervals (90%) contain")


def verdict(outcome: str, **about: object) -> Verdict:
    numbers = {"summaries": 1, "latents": 0, "listed": 1}
    return Verdict.model_validate({
        "verdict": outcome, "gates": [], "experiment": "x", "num_chains": 4, "num_draws": 9, "num_coordinates": numbers, "latents": {},
        "num_divergences": None, "divergence_share": None, "bfmi": [], "acceptance_rate": None, **about,
    })  # fmt: skip


def test_what_may_be_trusted() -> None:
    assert trust(verdict("pass")) == ""
    assert "gates that did not pass" in trust(verdict("warn"))
    assert "do not trust these numbers" in trust(verdict("fail"))
    many = {"pass": 8, "warn": 0, "fail": 2}
    assert "the 2 datasets that fail" in trust(verdict("fail", datasets=many))
    assert trust(verdict("warn", datasets={"pass": 9, "warn": 1, "fail": 0})) == ""


def test_chains_that_disagree_on_a_coordinate() -> None:
    settled, moved = estimate("a", 0, 1), estimate("b", 0, 1)
    moved = moved._replace(item=dataclasses.replace(moved.item, r_hat=1.02))
    assert say_unsettled([settled], verdict("pass")) == ""
    assert say_unsettled([settled, moved], verdict("pass")).startswith("For 1 of these 2, R-hat is above 1.01")
