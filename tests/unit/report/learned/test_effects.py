"""Effects of predictors, in numbers and words."""

from __future__ import annotations

import math

import pytest

from bayesmesh.report.learned.effects import build_effects

MEAN = "the mean of y"


def change(predictor: str, words: str, *numbers: float, is_ratio: bool = True, of: str = MEAN) -> dict[str, object]:
    values = dict(zip(("low", "mean", "high"), numbers, strict=True))
    return {"predictor": predictor, "change": words, "of": of, "is_ratio": is_ratio, "mcse_mean": 0.01, **values}


DOSE, TWICE, SAND = (
    change("dose", "one more unit of dose", 0.1, 0.2, 0.3),
    change("dose", "two more units of dose", 0.2, 0.4, 0.6),
    change("soil[sand]", "sand instead of clay (soil)", -0.5, 0.1, 0.4),
)


def test_a_factor_is_the_exponential_of_a_difference_of_the_linear_predictor() -> None:
    shown = build_effects([DOSE, TWICE, SAND], may_speak=True)
    assert shown is not None
    dose, _, sand = shown.rows
    assert (dose.low, dose.mean, dose.high) == pytest.approx([math.exp(x) for x in (0.1, 0.2, 0.3)])
    assert dose.mcse == pytest.approx(0.01 * math.exp(0.2))
    assert (dose.side, sand.side) == (1, 0)
    assert shown.sentences == [
        "One more unit of dose raises the mean of y by 22% on average (90% interval 11% to 35%); two more units of dose by 49% (22% to 82%).",
        "The interval of one other change does not show a direction.",
    ]
    assert build_effects([DOSE], may_speak=False).sentences == []
    assert build_effects(None, may_speak=True) is None


def test_differences_are_added_and_sentences_prefer_factors() -> None:
    difference = change("dose", "one more unit of dose", 0.1, 0.2, 0.3, is_ratio=False)
    zeros = change("zeros", "1 instead of 0 (zeros)", -3, -2, -1, is_ratio=False)
    shown = build_effects([difference], may_speak=True)
    assert shown.sentences == [
        "One more unit of dose adds 0.20 to the mean of y on average (90% interval 0.10 to 0.30)."
    ]
    shown = build_effects([difference, DOSE, zeros], may_speak=True)
    assert [sentence.split(" (")[0] for sentence in shown.sentences] == [
        "One more unit of dose raises the mean of y by 22% on average",
        "1 instead of 0",
    ]


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((-70.6, -34.5, -1.19), ("−34", "−71", "−1")),
        ((-70.6, -34.5, -0.03), ("−34.50", "−70.60", "−0.03")),
        ((-70.6, 5.0, 99.0), ("5", "−71", "99")),
    ],
)
def test_an_end_of_an_interval_does_not_read_as_no_effect(numbers: tuple[float, ...], texts: tuple[str, ...]) -> None:
    shown = build_effects([change("dose", "one more unit of dose", *numbers, is_ratio=False)], may_speak=True)
    assert shown is not None
    assert shown.rows[0].texts == texts


def test_wider_intervals_may_no_longer_show_a_direction() -> None:
    weak = change("soil[silt]", "silt instead of clay (soil)", 0.01, 0.2, 0.4)
    shown = build_effects([DOSE, weak], may_speak=True, widening=1.5)
    assert shown.sentences[-1].endswith(
        "1 of 2 would still show the direction of the effect, but not: silt instead of clay (soil)."
    )
    assert "5% to 42% and still excludes 0" in shown.robustness
