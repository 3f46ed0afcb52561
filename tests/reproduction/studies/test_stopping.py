"""The study of stopping: chains sample the posterior, rules stop where a run would, and numbers match the documentation."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.interim import evaluate_targets, look_numbers
from bayesmesh_reproduction.studies import files, stopping
from bayesmesh_reproduction.studies.files import draw_stopping, run_stopping
from bayesmesh_reproduction.studies.stopping import RULES, SPEEDS, Setting, make_draws, measure, stop_runs

SMALL = Setting(
    replications=40, limits={"gates": (506, 506), "ESS 100, early": (152, 300), "MCSE 0.1, often": (150, 300)}
)


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return make_draws(60, 500, 4, 7)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    """The rows of a small study."""
    return list(measure(SMALL))


def test_chains_are_in_the_posterior_from_the_first_draw(draws: np.ndarray) -> None:
    x, log_density = draws[..., :2], draws[..., 2]
    np.testing.assert_allclose(log_density, -0.5 * (x**2).sum(-1), rtol=1e-12)
    # 240 independent chains of two coordinates: five standard errors.
    for at in (0, 499):
        assert abs(x[:, at].mean()) < 5 / np.sqrt(480)
        assert abs(x[:, at].var() - 1) < 5 * np.sqrt(2 / 480)
        assert abs(log_density[:, at].mean() + 1) < 5 / np.sqrt(240)


def test_autocorrelation_is_as_documented(draws: np.ndarray) -> None:
    for steps, told in ((4, 0.54), (3, 0.73)):
        x = (draws if steps == 4 else make_draws(60, 500, steps, 7))[..., :2]
        assert (x[:, 1:] * x[:, :-1]).mean() == pytest.approx(told, abs=0.02)


@pytest.mark.parametrize("name", RULES)
def test_replications_stop_where_a_run_would(draws: np.ndarray, name: str) -> None:
    rule, runs = RULES[name], stop_runs(draws, RULES[name])
    assert len(set(runs.num_draws)) > 1
    for replication in range(6):
        one = draws[:, :, replication]
        expected = draws.shape[1]
        for number in look_numbers(rule.first_look, rule.growth, draws.shape[1]):
            seen = {"x": one[:, :number, :2], "log_density": one[:, :number, 2]}
            if all(target["is_met"] for target in evaluate_targets(seen, rule)):
                expected = number
                break
        assert runs.num_draws[replication] == expected
        assert runs.at_limit[replication] == (expected == draws.shape[1])
        table = convergence_table(one[:, :expected])
        np.testing.assert_allclose(runs.mcse[replication], table["mcse_mean"], rtol=1e-12)
        np.testing.assert_allclose(runs.mean[replication], one[:, :expected].mean((0, 1)), atol=1e-12)


def test_mass_is_the_probability_of_the_interval(draws: np.ndarray) -> None:
    runs = stop_runs(draws, RULES["gates"])
    exact = np.random.default_rng(1).normal(size=(200_000, 2))
    log_density = -0.5 * (exact**2).sum(1)
    for replication in (0, 1):
        one = draws[:, : runs.num_draws[replication], replication]
        low, high = np.quantile(one, (0.05, 0.95), axis=(0, 1))
        for quantity, values in enumerate((exact[:, 0], exact[:, 1], log_density)):
            share = ((values > low[quantity]) & (values <= high[quantity])).mean()
            assert runs.mass[replication, quantity] == pytest.approx(share, abs=0.004)


def test_rows_compare_both_ways_on_the_same_length(rows: list[dict[str, object]]) -> None:
    assert len(rows) == 2 * 3 * 2 * 2
    for stopped, fixed in zip(rows[::2], rows[1::2], strict=True):
        assert (stopped["ended"], fixed["ended"]) == ("rule", "fixed")
        assert fixed["draws"] == round(stopped["draws"])
        assert fixed["draws_sd"] == 0
        assert stopped["coverage_change"] == pytest.approx(stopped["coverage"] - fixed["coverage"])
        assert fixed["coverage_change"] is None
        assert 0.6 < stopped["coverage"] <= 1


def test_a_greedy_rule_is_optimistic(monkeypatch: pytest.MonkeyPatch) -> None:
    """As documented, on fewer runs: the sd and the standard error of the log density are too small."""
    name = "MCSE 0.1, often"
    monkeypatch.setattr(stopping, "RULES", {name: RULES[name]})
    monkeypatch.setattr(stopping, "SPEEDS", {"quick": SPEEDS["quick"]})
    setting = Setting(replications=300, limits=dict.fromkeys(RULES, (300, 300)), seed=3)
    found = {(r["chains"], r["rule"], r["quantity"]): r for r in measure(setting) if r["ended"] == "rule"}
    greedy = found["quick", name, "log density"]
    assert greedy["bias_sd_change"] < -2 * greedy["bias_sd_change_se"]
    assert greedy["bias_mean_change"] > 2 * greedy["bias_mean_change_se"]
    assert greedy["mcse_over_error"] < 1


def test_table_and_figure_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, object]]
) -> None:
    asked = []
    monkeypatch.setattr(files, "measure", lambda setting: asked.append(setting) or iter(rows))
    monkeypatch.setattr("jax.config.update", lambda *_: None)
    said = run_stopping(tmp_path, SMALL)
    assert asked == [SMALL]
    assert "40 replications of 6 rules and chains" in said
    with (tmp_path / "studies" / "stopping.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == 24
    figure = (tmp_path / "studies" / "stopping.svg").read_text()
    assert figure.count("stopped by the rule") >= 1
    assert "quick · gates · coordinate" in figure
    assert draw_stopping(rows) == figure
