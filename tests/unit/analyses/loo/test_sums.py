"""Sums of leave-one-out scores: by hand, and through the table."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.analyses.loo.sums import COLUMNS, read_sums, summarise, write_sums
from bayesmesh.diagnostics.psis import good_k
from bayesmesh.store.scores import RowScores

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
