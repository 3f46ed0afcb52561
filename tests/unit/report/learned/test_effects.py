"""Effects of predictors, in numbers and words."""

from __future__ import annotations

import math

import pytest

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.learned.effects import build_effects
from bayesmesh.report.learned.estimates import Estimate
from bayesmesh.store.posterior.description import Change, Effects


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
