"""When one looks, and what counts as met."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bayesmesh.config.blocks import StopSettings
from bayesmesh.diagnostics.convergence import convergence_table, within
from bayesmesh.diagnostics.interim import evaluate_targets, look_numbers

ALL = {"min_ess_bulk": 1.0, "min_ess_tail": 1.0, "max_r_hat": 10.0, "max_mcse": {"x": 1e9}}
"""Targets that any four draws of two chains would meet."""


def independent(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("first", [1, 2, 7, 100])
@pytest.mark.parametrize("growth", [1.1, 1.5, 2.0, 10.0])
def test_looks_are_at_fixed_numbers_whatever_the_last_draw(first: int, growth: float) -> None:
    whole = look_numbers(first, growth, 5000)
    assert whole[0] == first
    assert whole == sorted(set(whole))
    assert np.all(
        np.abs(np.array(whole) - first * growth ** np.round(np.log(np.array(whole) / first) / np.log(growth))) < 1
    )
    for last in (first - 1, first, first + 1, whole[-1], 5000):
        assert look_numbers(first, growth, last) == [number for number in whole if number <= last]


def test_values_are_those_of_the_diagnostics_of_the_worst_coordinate() -> None:
    good, bad = independent(4, 300, 3), np.cumsum(independent(4, 300, seed=1), axis=1)
    rule = StopSettings(min_ess_bulk=400, min_ess_tail=300, max_r_hat=1.01, max_mcse={"good": 0.01, "bad": 1e3})
    found = {entry["name"]: entry for entry in evaluate_targets({"bad": bad, "good": good}, rule)}
    tables = {n: convergence_table(v.reshape(4, 300, -1)) for n, v in {"bad": bad, "good": good}.items()}
    for name, statistic, worst in (("min_ess_bulk", "ess_bulk", min), ("min_ess_tail", "ess_tail", min), ("max_r_hat", "r_hat", max)):  # fmt: skip
        assert found[name]["value"] == worst(*tables["bad"][statistic], *tables["good"][statistic])
    assert found["min_ess_bulk"]["where"] == "bad"
    assert found["max_mcse.bad"]["value"] == tables["bad"]["mcse_mean"][0]
    assert found["max_mcse.good"]["where"] == f"good[{tables['good']['mcse_mean'].argmax()}]"
    assert found["max_mcse.bad"]["is_met"]
    assert not found["max_mcse.good"]["is_met"]


def test_only_named_summaries_count() -> None:
    stuck = np.repeat(np.arange(4.0)[:, None], 100, axis=1) + independent(4, 100) / 100
    draws = {"fine": independent(4, 100), "stuck": stuck}
    assert not evaluate_targets(draws, StopSettings(min_ess_bulk=100))[0]["is_met"]
    assert evaluate_targets(draws, StopSettings(min_ess_bulk=100, summaries=("fine",)))[0]["is_met"]
    assert evaluate_targets(draws, StopSettings(min_ess_bulk=100, max_mcse={"stuck": 9.0}, summaries=("fine",)))[1][
        "is_met"
    ]


@pytest.mark.parametrize(("chains", "num_draws"), [(4, 1), (4, 3)])
def test_too_few_draws_never_meet_a_target(chains: int, num_draws: int) -> None:
    found = evaluate_targets({"x": independent(chains, num_draws, 2)}, StopSettings(**ALL))
    assert len(found) == 4
    assert [entry["value"] for entry in found] == [None] * 4
    assert not any(entry["is_met"] for entry in found)
    assert all(entry["is_met"] for entry in evaluate_targets({"x": independent(chains, 50, 2)}, StopSettings(**ALL)))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_meets_a_target(odd: float) -> None:
    x = independent(4, 100, 3)
    x[2, 17, 1] = odd
    for entry in evaluate_targets({"x": x}, StopSettings(**ALL)):
        assert (entry["is_met"], entry["value"], entry["where"]) == (False, None, "x[1]")
    for is_upper in (True, False):
        assert not within(np.array([odd]), 1.0, is_upper=is_upper)[0]


@pytest.mark.parametrize("rule", [{"min_ess_bulk": 50.0}, {"max_mcse": {"x": 0.2}}])
def test_a_target_that_is_hit_exactly_is_met(rule: dict[str, Any]) -> None:
    values = np.array([50.0, 0.2])
    assert within(values[:1], 50.0, is_upper=False)[0]
    assert within(values[1:], 0.2, is_upper=True)[0]
    assert StopSettings(**rule).growth == 1.5


def test_entries_that_no_latent_changes_meet_every_target() -> None:
    draws = {"predictor": np.zeros((4, 200, 3)), "level": np.random.default_rng(0).normal(size=(4, 200))}
    rule = StopSettings(min_ess_bulk=100, max_r_hat=1.1)
    assert not all(each["is_met"] for each in evaluate_targets(draws, rule))
    found = evaluate_targets(draws, rule, fixed={"predictor": np.arange(3)})
    assert [(each["where"], each["is_met"]) for each in found] == [("level", True)] * 2
