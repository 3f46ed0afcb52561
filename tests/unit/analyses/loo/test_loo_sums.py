"""Sums of leave-one-out scores: by hand, and through the table."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from bayesmesh.analyses.loo.loo_sums import COLUMNS, read_sums, summarise, write_sums
from bayesmesh.analyses.loo.section import build_section, fit_checks, rows_by_k, rows_by_score, sentences, share_inside
from bayesmesh.diagnostics.psis import good_k
from bayesmesh.errors import StoreError
from bayesmesh.store.score_store import POINTWISE, RowScores, write_pointwise

SCORES = RowScores(
    np.array([-1.0, -3.0, -2.0]), "d", False, 1000, pareto_k=np.array([0.1, 0.9, 1.2]),
    effective_parameters=np.array([0.5, 1.0, 1.5]), mcse=np.array([0.3, 0.0, 0.4]), is_matched=np.array([0.0, 1.0, 0.0]),
)  # fmt: skip


def test_sums_and_errors_are_those_of_the_rows(tmp_path: Path) -> None:
    sums = summarise(SCORES, RowScores(np.array([-4.0, -6.0]), "e", False, 1000))
    assert sums["elpd"] == -6
    assert sums["elpd_se"] == pytest.approx(math.sqrt(3))
    assert sums["elpd_mcse"] == pytest.approx(0.5)
    assert (sums["p_loo"], sums["p_loo_se"]) == (3.0, pytest.approx(math.sqrt(3) * 0.5))
    assert (sums["good_k"], sums["largest_k"], sums["num_high_k"], sums["num_k_above_1"]) == (good_k(1000), 1.2, 2, 1)
    assert (sums["held_out_elpd"], sums["held_out_se"], sums["held_out_rows"]) == (-10, pytest.approx(2), 2)
    assert (sums["num_matched"], sums["num_refit"]) == (1, 0)
    assert sums["held_out_mcse"] == 0
    noisy = RowScores(np.array([-4.0, -6.0]), "e", False, 1000, sum_mcse=0.3)
    assert summarise(SCORES, noisy)["held_out_mcse"] == 0.3
    assert math.isnan(summarise(SCORES, None)["held_out_mcse"])
    assert math.isnan(sums["pit_p_value"])
    write_sums(tmp_path / "loo.csv", sums)
    found = read_sums(tmp_path / "loo.csv")
    assert found is not None
    np.testing.assert_array_equal([found[name] for name in COLUMNS], [sums[name] for name in COLUMNS])


def test_the_page_says_which_outcome_is_impossible(tmp_path: Path) -> None:
    elpd, k = np.array([-1.0, -np.inf, -2.0]), np.array([0.1, np.inf, 0.2])
    left_out = dataclasses.replace(SCORES, elpd=elpd, pareto_k=k, effective_parameters=np.array([0.5, np.inf, 1.0]))
    held_out = RowScores(np.array([-4.0, -np.inf]), "e", False, 1000)
    files = {"loo.csv": tmp_path / "loo.csv", POINTWISE: tmp_path / POINTWISE}
    write_sums(files["loo.csv"], summarise(left_out, held_out))
    write_pointwise(files[POINTWISE], left_out, held_out)
    found = build_section(files)
    assert found is not None
    assert "1 of 3 left-out rows has no finite log score (the first is number 1)" in found.body
    assert "1 of 2 held-out rows has no finite log score" in found.body
    assert "Rows without a finite score" in [number.name for number in found.numbers]


def test_more_effective_parameters_than_the_model_has_are_a_symptom_of_misfit() -> None:
    sums = {**summarise(SCORES, None, 2), "p_loo": 12.0, "p_loo_se": 2.0}
    (said,) = [each for each in sentences(sums) if "p_loo" in each]
    assert said.endswith(
        "12.0 ± 2.0, more than the 2 that the model has. This is a symptom of misfit, not of flexibility: individual rows surprise the model."
    )
    assert [(each.name, each.state) for each in fit_checks(sums)] == [
        ("effective parameters", "warn"),
        ("Pareto k", "warn"),
    ]
    within = {**sums, "p_loo_se": 3.5, "num_high_k": 0}
    assert "The effective number of parameters (p_loo) is 12.0 ± 3.5 of 2." in sentences(within)
    assert [(each.name, each.state) for each in fit_checks(within)] == [("Pareto k", "pass")]


def test_rows_are_listed_by_k_and_by_score() -> None:
    by_k, by_score = rows_by_k(SCORES), rows_by_score(SCORES)
    assert by_k["Training row, from 0"].tolist() == ["2", "1", "0"]
    assert by_score["Training row, from 0"].tolist() == ["1", "2", "0"]
    assert by_score["Log score"].tolist() == [-3.0, -2.0, -1.0]
    assert "LOO-PIT" not in by_k


def test_without_a_table_there_is_nothing_and_another_number_of_rows_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "loo.csv"
    assert read_sums(path) is None
    write_sums(path, summarise(SCORES, None))
    path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
    with pytest.raises(StoreError, match="2 rows instead of one"):
        read_sums(path)


def test_too_narrow_predictions_say_how_many_outcomes_they_hold() -> None:
    pit = norm.cdf(1.5 * norm.ppf((np.arange(400) + 0.5) / 400))
    scores = RowScores(
        np.full(400, -1.0), "d", True, 1000, pareto_k=np.zeros(400), effective_parameters=np.zeros(400), mcse=np.zeros(400),
        pit=pit,
    )  # fmt: skip
    inside = share_inside(scores)
    assert inside == pytest.approx(0.7275, abs=0.01)
    check = next(each for each in fit_checks(summarise(scores, None), inside=inside) if each.name == "LOO-PIT")
    assert check.spread == pytest.approx(1.5, abs=0.03)
    assert "intervals that should hold 90% of the outcomes hold 72% (LOO-PIT, p ≤ 0.00025)" in check.text
