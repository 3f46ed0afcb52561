"""Effects of predictors, in numbers and words."""

from __future__ import annotations

import math

import pytest

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.learned.learned_effects import build_effects
from bayesmesh.report.learned.learned_estimates import Estimate
from bayesmesh.store.stored_description import Change, Effects


def estimate(name: str, low: float, median: float, high: float, variable: str = "b") -> Estimate:
    item = Coordinate(variable, (0,), median, 1.0, 0.1, 1.0, 500.0, 500.0, names=name)
    return Estimate(item, low, high, math.nan, math.nan, 0.0, math.nan, median)


DOSE, SOIL = Change(summary="b", entry="dose", words="one more unit of dose"), Change(
    summary="b", entry="soil[sand]", words="sand instead of clay (soil)"
)  # fmt: skip
ESTIMATES = [estimate("dose", 0.1, 0.2, 0.3), estimate("soil[sand]", -0.5, 0.1, 0.4)]


def test_a_ratio_is_the_exponential_of_each_quantile() -> None:
    effects = Effects(scale="ratio", of="the mean of y", changes=(DOSE, SOIL, DOSE.model_copy(update={"factor": 2.0})))
    shown = build_effects(effects, ESTIMATES, may_speak=True)
    assert shown is not None
    dose, twice, soil = shown.rows
    assert (dose.low, dose.median, dose.high) == pytest.approx([math.exp(x) for x in (0.1, 0.2, 0.3)])
    assert (dose.side, soil.side) == (1, 0)
    assert (shown.verb, shown.has_of) == ("Multiplies the mean of y by", False)
    assert twice.median == pytest.approx(dose.median**2)
    assert shown.sentences == [
        "One more unit of dose raises the mean of y by 22% (90% interval 11% to 35%); one more unit of dose by 49% (22% to 82%).",
        "The interval of the other change contains 1: the data do not say whether it raises or lowers the mean of y.",
    ]
    assert build_effects(effects, ESTIMATES, may_speak=False).sentences == []


def test_a_small_effect_has_the_digits_that_tell_it_from_none_and_a_large_one_is_a_factor() -> None:
    effects = Effects(scale="ratio", of="the mean of y", changes=(DOSE,))
    small = build_effects(effects, [estimate("dose", -0.0149, -0.0122, -0.0094)], may_speak=True)
    large = build_effects(effects, [estimate("dose", 0.9, 1.0, 1.1)], may_speak=True)
    assert small is not None
    assert large is not None
    assert small.sentences == ["One more unit of dose lowers the mean of y by 1.21% (90% interval 0.94% to 1.48%)."]
    assert small.rows[0].texts == ("0.9879", "0.9852", "0.9906")
    assert large.sentences == ["One more unit of dose multiplies the mean of y by 2.72 (90% interval 2.46 to 3.00)."]


def test_what_would_remain_of_effects_with_wider_intervals_is_said() -> None:
    effects = Effects(scale="ratio", of="the mean of y", changes=(DOSE, SOIL))
    estimates = [estimate("dose", 0.1, 0.2, 0.3), estimate("soil[sand]", -0.5, -0.3, -0.1)]
    shown = build_effects(effects, estimates, may_speak=True, widening=1.6)
    assert shown is not None
    # exp(0.2 ± 1.6 x 0.1) - 1.
    assert (
        shown.robustness
        == "At 1.6 times its width, as the misfit suggests, the interval is 4% to 43% and still excludes 0."
    )
    assert shown.sentences[2] == (
        "If these intervals were 1.6 times as wide, as the misfit suggests, 1 of 2 would still show the direction of the effect, "
        "but not: sand instead of clay (soil)."
    )
    lost = build_effects(effects, estimates, may_speak=True, widening=2.5)
    assert lost is not None
    assert lost.robustness.endswith("the interval is −5% to 57% and no longer excludes 0.")
    assert len(build_effects(effects, estimates, may_speak=True).sentences) == 2


def test_a_difference_is_added_and_levels_of_the_outcome_are_named() -> None:
    effects = Effects(scale="difference", of="the mean of y", changes=(DOSE,))
    shown = build_effects(effects, ESTIMATES, may_speak=True)
    assert shown is not None
    assert shown.sentences == ["One more unit of dose adds 0.20 to the mean of y (90% interval 0.10 to 0.30)."]
    effects = Effects(scale="ratio", of="the odds of {level} against a", changes=(DOSE,))
    shown = build_effects(
        effects, [estimate("dose,b", 0.1, 0.2, 0.3), estimate("dose,c", 0.1, 0.2, 0.3)], may_speak=True
    )
    assert shown is not None
    assert [row.of for row in shown.rows] == ["the odds of b against a", "the odds of c against a"]


def test_names_of_levels_may_contain_commas() -> None:
    towns = tuple(
        Change(summary="b", entry=town, words=f"{town} instead of Aachen (town)") for town in ("Paris", "Paris, TX")
    )
    effects = Effects(scale="difference", of="the mean of y", changes=towns)
    estimates = [estimate("Paris", 0.9, 1.0, 1.1), estimate("Paris, TX", -5.1, -5.0, -4.9)]
    shown = build_effects(effects, estimates, may_speak=True)
    assert shown is not None
    assert [(row.words, row.median) for row in shown.rows] == [
        ("Paris instead of Aachen (town)", 1.0),
        ("Paris, TX instead of Aachen (town)", -5.0),
    ]
    effects = Effects(scale="ratio", of="the odds of {level}", changes=(*towns, Change(summary="a", words="more a")))
    names = ["Paris,b", "Paris,no, c", "Paris, TX,b", "Paris, TX,no, c"]
    estimates = [estimate(name, 0.1, 0.2, 0.3) for name in names]
    shown = build_effects(effects, [*estimates, estimate("no, c", 0.1, 0.2, 0.3, "a")], may_speak=True)
    assert shown is not None
    assert [(row.words.partition(" instead")[0], row.of) for row in shown.rows] == [
        ("Paris", "the odds of b"), ("Paris", "the odds of no, c"), ("Paris, TX", "the odds of b"),
        ("Paris, TX", "the odds of no, c"), ("more a", "the odds of no, c"),
    ]  # fmt: skip


def test_without_coefficients_of_single_predictors_nothing_is_said() -> None:
    assert build_effects(None, ESTIMATES, may_speak=True) is None
    assert build_effects(Effects(scale="ratio", of="the mean"), ESTIMATES, may_speak=True) is None
