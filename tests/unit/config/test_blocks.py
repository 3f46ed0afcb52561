"""The blocks of the configuration: what is refused of the rule that ends sampling, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.config.blocks import StopSettings
from bayesmesh.config.loading import load_experiment
from bayesmesh.errors import ConfigError

Refused = Callable[..., ConfigError]


def _sampling(stop: str, rest: str = "") -> str:
    return f"sampling:\n  stop: {stop}\n{rest}"


REFUSED = [
    ("{}", "", "key 'sampling.stop': no target; set at least one of min_ess_bulk", "max_r_hat: 1.01"),
    ("{first_look: 9}", "", "key 'sampling.stop': no target", "min_ess_bulk: 400"),
    ("{min_ess: 9}", "", "unknown key 'sampling.stop.min_ess'", "did you mean 'min_ess_"),
    ("{min_ess_bulk: 0}", "", "key 'sampling.stop.min_ess_bulk': should be greater than 0", "draws"),
    ("{max_r_hat: 1.0}", "", "key 'sampling.stop.max_r_hat': should be greater than 1", "R-hat"),
    ("{max_mcse: 0.1}", "", "key 'sampling.stop.max_mcse': should be a mapping", "unit of the summary"),
    ("{max_mcse: {mean: -1}}", "", "key 'sampling.stop.max_mcse.mean': should be greater than 0", ""),
    ("{max_mcse: {}}", "", "key 'sampling.stop.max_mcse'", "unit of the summary"),
    ("{max_r_hat: 1.1, summaries: []}", "", "key 'sampling.stop.summaries'", "gates"),
    ("{max_r_hat: 1.1, growth: 1.0}", "", "key 'sampling.stop.growth': should be greater than or equal to 1.1", ""),
    ("{max_r_hat: 1.1, first_look: 1200}", "", "'sampling.stop.first_look': 1200 draws are more than", "lower first_look"),
    ("{max_r_hat: 1.1}", "  chains: 1\n", "key 'sampling.stop.max_r_hat': R-hat compares the chains", "more chains"),
    (
        "{max_r_hat: 1.1}", "  chains: 3\n  mode: independent\n  chain_groups: 3\n",
        "key 'sampling.stop.max_r_hat': R-hat compares the chains", "fewer chain_groups",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stop", "rest", "message", "remedy"), REFUSED)
def test_a_rule_that_cannot_work_is_refused(
    refused: Refused, good: str, stop: str, rest: str, message: str, remedy: str
) -> None:
    error = refused(good + _sampling(stop, rest))
    assert message in error.message
    assert remedy in error.remedy


def test_a_rule_is_read_with_its_defaults(good: str, tmp_path: Path) -> None:
    path = tmp_path / "test.yaml"
    path.write_text(good + _sampling("{max_mcse: {mean: 1}, summaries: [mean], max_seconds: 60}"))
    rule = load_experiment(path).sampling.stop
    assert rule == StopSettings(max_mcse={"mean": 1.0}, summaries=("mean",), max_seconds=60.0)
    assert (rule.first_look, rule.growth, rule.min_ess_bulk) == (100, 1.5, None)


def test_one_chain_may_be_stopped_by_other_targets(good: str, tmp_path: Path) -> None:
    path = tmp_path / "test.yaml"
    path.write_text(good + _sampling("{min_ess_bulk: 50}", "  chains: 1\n"))
    assert load_experiment(path).sampling.stop is not None
    path.write_text(good)
    assert load_experiment(path).sampling.stop is None
