"""The rule at work on a store: where it stops, why, and that neither segments nor interruptions change it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.config.blocks import StopSettings
from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.interim import look_numbers
from bayesmesh.sampling.loop.monitor import MonitoredSummaries
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.workflow.stages.stop_rule import StopRule

CHAINS, LIMIT = 4, 500


def _draws() -> np.ndarray:
    """Autocorrelated log densities, (draw, chain)."""
    noise, x = np.random.default_rng(5).normal(size=(LIMIT, CHAINS)), np.zeros((LIMIT, CHAINS))
    for t in range(LIMIT):
        x[t] = 0.5 * x[t - 1] + noise[t]
    return x


DRAWS = _draws()


def _ess(num_draws: int) -> float:
    return float(convergence_table(DRAWS[:num_draws].T[:, :, None])["ess_bulk"][0])


class Group:
    """A chain group that commits known draws, asking its rule after every commit as the loop does."""

    def __init__(self, folder: Path, segment: int = 64) -> None:
        self.store = ChainStore(folder, segment, {"identity": "one"})
        self.folder, self.rule = folder, None

    def begin(self, limit: int = LIMIT, **settings: Any) -> StopRule:
        """Open the group's rule as the stage does, in a new process as it were."""
        last = self.store.begin_writing()
        self.done = last.stop if last is not None else 0
        rule_settings = StopSettings(**{"summaries": ("log_density",), "first_look": 20, **settings})
        monitored = MonitoredSummaries(None, None, None, self.folder, ["log_density"], 1)  # type: ignore[arg-type]
        self.rule = StopRule(rule_settings, limit, [monitored], self.store, self.folder / "looks.json")
        self.rule.is_enough()
        return self.rule

    def run(self, most_commits: int = 10**9, seconds: float = 1.0) -> StopRule:
        """Sample until the rule or its limit, or a number of commits, ends it."""
        rule, commits = self.rule, 0
        assert rule is not None
        while self.done < rule.num_draws and commits < most_commits:
            count = self.store.next_count(self.done, rule.num_draws)
            values = {"sample_stats": {"lp": DRAWS[self.done : self.done + count]}}
            commit = self.store.commit(
                "sample", self.done, values, {"x": np.zeros(1)}, {"count": count, "seconds": seconds}
            )
            self.done, commits = commit.stop, commits + 1
            if rule.is_enough():
                break
        return rule


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path / "group")


def _outcome(rule: StopRule) -> tuple[int, str, list[tuple[int, bool, Any]]]:
    content = rule.content()
    looks = [(look["draws"], look["is_met"], look["targets"]) for look in content["looks"]]
    return content["num_draws"], content["reason"], looks


def test_it_stops_at_the_first_look_that_meets_the_target(group: Group) -> None:
    looks = look_numbers(20, 1.5, LIMIT)
    expected = next(n for n in looks if _ess(n) >= 200)
    assert 20 < expected < LIMIT
    group.begin(min_ess_bulk=200)
    rule = group.run()
    assert (rule.num_draws, rule.reason) == (expected, "met")
    found = rule.content()["looks"]
    assert [look["draws"] for look in found] == [n for n in looks if n <= expected]
    assert [look["is_met"] for look in found] == [False] * (len(found) - 1) + [True]
    assert [look["targets"][0]["value"] for look in found] == [_ess(look["draws"]) for look in found]
    assert group.done == -(-expected // 64) * 64, "it ends with the segment that holds the look"
    assert json.loads((group.folder / "looks.json").read_text()) == rule.content()


def test_a_target_that_is_never_met_ends_at_the_limit(group: Group) -> None:
    group.begin(min_ess_bulk=1e6)
    rule = group.run()
    assert (rule.num_draws, rule.reason, group.done) == (LIMIT, "draws", LIMIT)
    assert len(rule.content()["looks"]) == len(look_numbers(20, 1.5, LIMIT))


def test_the_time_limit_ends_it_at_the_commit_that_reached_it(group: Group) -> None:
    group.begin(min_ess_bulk=1e6, max_seconds=3.0)
    rule = group.run(seconds=1.25)
    assert (rule.num_draws, rule.reason) == (3 * 64, "seconds")
    assert [look["draws"] for look in rule.content()["looks"]] == look_numbers(20, 1.5, 192)
    again = group.begin(min_ess_bulk=1e6, max_seconds=3.0)
    assert _outcome(again) == _outcome(rule)


def test_seconds_of_all_runs_count_and_a_target_met_before_them_wins(group: Group) -> None:
    group.begin(min_ess_bulk=1e6, max_seconds=3.0)
    group.run(most_commits=2)
    group.begin(min_ess_bulk=1e6, max_seconds=3.0)
    assert (group.run().num_draws, group.rule.reason) == (192, "seconds")
    assert group.begin(min_ess_bulk=60, max_seconds=3.0).reason == "met"
    longer = group.begin(min_ess_bulk=1e6, max_seconds=5.0)
    assert (longer.reason, group.run().num_draws) == ("", 320)


@pytest.mark.parametrize("segment", [1, 7, 100, 500])
def test_the_length_of_a_segment_does_not_change_the_stopping_point(group: Group, tmp_path: Path, segment: int) -> None:
    group.begin(min_ess_bulk=200)
    other = Group(tmp_path / "other", segment)
    other.begin(min_ess_bulk=200)
    assert _outcome(other.run()) == _outcome(group.run())


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_resumed_run_takes_the_same_looks(group: Group, tmp_path: Path, cut: int) -> None:
    whole = Group(tmp_path / "whole", 16)
    whole.begin(min_ess_bulk=200)
    expected = _outcome(whole.run())
    group.store.segment_draws = 16
    group.begin(min_ess_bulk=200)
    assert group.run(most_commits=cut).reason == ""
    group.begin(min_ess_bulk=200)
    assert _outcome(group.run()) == expected


def test_a_finished_run_samples_nothing_more(group: Group) -> None:
    group.begin(min_ess_bulk=200)
    before, done = _outcome(group.run()), group.done
    again = group.begin(min_ess_bulk=200)
    assert again.reason == "met"
    assert again.num_draws <= done
    assert _outcome(again) == before


def test_a_raised_target_continues_and_a_lowered_one_cuts(group: Group) -> None:
    group.begin(min_ess_bulk=100)
    low, done = group.run().num_draws, group.done
    assert group.begin(min_ess_bulk=300).reason == ""
    high = group.run().num_draws
    assert high > low
    assert group.done > done
    lowered = group.begin(min_ess_bulk=100)
    assert (lowered.num_draws, lowered.reason) == (low, "met")
    assert group.begin(limit=low - 1, min_ess_bulk=100).num_draws == low - 1
    assert group.rule.reason == "draws"


class Known:
    """Draws of one summary that says how often it was asked for."""

    def __init__(self, name: str, values: np.ndarray) -> None:
        self.name, self.values, self.asked = name, values, []

    def first(self, num_draws: int) -> dict[str, np.ndarray]:
        self.asked.append(num_draws)
        return {self.name: self.values[:, :num_draws]}

    def fixed(self) -> dict[str, np.ndarray]:
        return {}


def test_what_is_costly_is_looked_at_only_when_the_rest_meets_the_targets(group: Group) -> None:
    group.begin(min_ess_bulk=1e6)
    group.run()
    cheap, costly = Known("log_density", DRAWS.T), Known("x", np.repeat(DRAWS.T[:, ::2], 2, axis=1))
    rule = StopSettings(min_ess_bulk=100, max_mcse={"x": 1.0}, first_look=20)
    found = StopRule(rule, LIMIT, [cheap, costly], group.store, group.folder / "looks.json")  # type: ignore[list-item]
    assert found.is_enough()
    assert found.reason == "met"
    looks = found.content()["looks"]
    assert cheap.asked == [look["draws"] for look in looks]
    assert costly.asked == [n for n in cheap.asked if _ess(n) >= 100]
    assert 0 < len(costly.asked) < len(cheap.asked)
    for look in looks:
        went_on = look["draws"] in costly.asked
        assert look["judged"] == (["log_density", "x"] if went_on else ["log_density"])
        assert [target["name"] for target in look["targets"]] == ["min_ess_bulk", "max_mcse.x"][: 1 + went_on]
    assert looks[-1]["judged"] == ["log_density", "x"], "nothing is met without all"


# -- names -------------------------------------------------------------------------------------------------------------
