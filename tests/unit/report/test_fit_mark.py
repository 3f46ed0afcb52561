"""The mark for the fit of the model: what checks found, what follows, and what to try."""

from __future__ import annotations

import math

import pytest

from bayesmesh.analyses.figures.sections import Aspect, FitCheck
from bayesmesh.config.declarations import declared
from bayesmesh.report.fit_mark import mark_fit
from bayesmesh.store.posterior.description import ModelDescription

POISSON = ModelDescription(remedies={"narrow": "Try `family: negative_binomial`."})
NARROW = FitCheck(
    "predictive checks", "fail", "Variance / mean 8 observed.", {"narrow": 9.0}, frozenset({"bias", "tails"})
)
BOTH = [declared("predictive_checks"), declared("loo")]


def test_intervals_that_are_too_narrow_are_told_from_a_bias() -> None:
    mark = mark_fit([NARROW, FitCheck("Pareto k", "pass")], BOTH, POISSON)
    assert (mark.state, mark.badge) == ("fail", "✗ refuted")
    assert mark.lead == "The data refute the model (predictive checks)."
    assert mark.findings == ["Variance / mean 8 observed."]
    assert "too narrow" in mark.consequences[0]
    assert "found no bias" in mark.consequences[1]
    assert mark.remedies == ["Try `family: negative_binomial`."]
    assert mark.caveat == " ".join(mark.consequences)


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
        ({"wide": 9.0, "uneven": 20.0}, {}, ["Use an outcome distribution that scatters less."]),
        ({"skewed": 9.0, "tails": 40.0}, {"I(x^2)": 3.0}, ["Use the log of the outcome, or a distribution of positive numbers such as the gamma distribution.", "Add `I(x^2)` to the formula: residuals follow it."]),
    ],
)  # fmt: skip
def test_the_best_advice_comes_first(refuted: dict[Aspect, float], terms: dict[str, float], advice: list[str]) -> None:
    check = FitCheck("predictive checks", "fail", "They differ.", refuted, terms=terms)
    assert mark_fit([check], BOTH, REMEDIES).remedies == advice
