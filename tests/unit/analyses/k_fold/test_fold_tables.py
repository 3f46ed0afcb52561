"""Both tables of cross-validation, written and read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.analyses.k_fold.fold_tables import Fold, read_folds, read_sums, write_tables
from bayesmesh.analyses.k_fold.section import build_section
from bayesmesh.errors import StoreError
from bayesmesh.store.score_store import POINTWISE, RowScores, write_pointwise

FOLDS = [Fold("own-1", 2, 3, -3.0, 0.1, -2.5, 0.2, "pass"), Fold("own-2", 1, 4, -2.0, 0.1, -2.0, 0.1, "fail")]
SCORES = RowScores(
    np.array([-1.0, -2.0, -2.0]), "d", False, 400, mcse=np.array([0.3, 0.4, 0.0]), cluster=np.array([0.0, 0.0, 1.0]),
    scheme="groups of 'site'", failed=("own-2",),
)  # fmt: skip


def test_the_page_says_which_outcome_is_impossible(tmp_path: Path) -> None:
    scores = dataclasses.replace(SCORES, elpd=np.array([-1.0, -2.0, -np.inf]), row=np.array([4.0, 7.0, 9.0]))
    files = {name: tmp_path / name for name in ("k_fold.csv", "folds.csv", POINTWISE)}
    write_tables(files["k_fold.csv"], files["folds.csv"], scores, None, FOLDS, 3)
    write_pointwise(files[POINTWISE], scores, None)
    found = build_section(files)
    assert found is not None
    assert "1 of 3 left-out rows has no finite log score (the first is number 9)" in found.body
    assert "Rows without a finite score" in [number.name for number in found.numbers]


def test_sums_and_folds_come_back(tmp_path: Path) -> None:
    sums, table = tmp_path / "k_fold.csv", tmp_path / "folds.csv"
    assert (read_sums(sums), read_folds(table)) == (None, [])
    said = write_tables(sums, table, SCORES, None, FOLDS, 3)
    assert said == "elpd -5.0 ± 1.0 on 3 rows, groups of 'site', 1 of 2 folds have failed their gates"
    found = read_sums(sums)
    assert found is not None
    numbers, scheme = found
    assert scheme == "groups of 'site'"
    assert (numbers["elpd"], numbers["num_clusters"], numbers["num_failed"], numbers["joint_elpd"]) == (-5, 2, 1, -4.5)
    # Two groups with sums of -3 and -2.
    assert numbers["elpd_se"] == pytest.approx(1.0)
    assert numbers["elpd_mcse"] == pytest.approx(0.5)
    assert numbers["held_out_rows"] == 0
    assert read_folds(table) == FOLDS
    sums.write_text(sums.read_text().splitlines()[0] + "\n")
    with pytest.raises(StoreError, match="0 rows instead of one"):
        read_sums(sums)
