"""`bayesmesh effects` prints or writes effects from the stored posterior, and averages over cells with weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesmesh as bm
from bayesmesh.cli import main
from stored_experiment import store_experiment

SHAPE = (2, 50)
generator = np.random.default_rng(3)
TABLE = pd.DataFrame({"y": generator.normal(0, 1, 30), "x": generator.normal(0, 1, 30), "site": ["a", "b", "c"] * 10})
LATENTS = {
    "intercept": generator.normal(0, 1, SHAPE), "coefficients": generator.normal(0, 1, (*SHAPE, 3)), "sigma": np.ones(SHAPE),
}  # fmt: skip


@pytest.fixture(autouse=True)
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store_experiment(TABLE, {"formula": "y ~ x + site"}, LATENTS)


def test_words_of_the_command_line_are_keys_of_the_analysis(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--comparisons", "x=2", "site=a,c", "--slopes", "x", "--by", "site", "--output", "out.csv"]
    assert main(["effects", "old", *words]) == 0
    found = pd.read_csv("out.csv", keep_default_na=False)
    assert found["contrast"].tolist() == ["+2"] * 3 + ["c - a"] * 3 + ["dY/dX"] * 3
    of_x = LATENTS["coefficients"][..., 0].mean()
    assert found["mean"][[0, 6]].tolist() == pytest.approx([2 * of_x, of_x])
    assert main(["effects", "old"]) == 0
    assert "b - a" in capsys.readouterr().out
    assert main(["effects", "old", "--comparisons", "xx"]) == 2
    assert main(["effects", "old", "--interval", "2"]) == 2


def test_a_notebook_averages_over_weighted_cells_of_its_own_categories() -> None:
    cells = pd.DataFrame({
        "x": [0.0, 1.0, 2.0, 3.0], "site": ["a", "b", "b", "c"], "people": [1, 2, 3, 4], "state": ["N", "N", "S", "S"],
    })  # fmt: skip
    found = bm.effects("old", predictions=True, cells=cells, weight="people", by=["state"], draws=100)
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in LATENTS.items()}
    columns = np.column_stack([cells.x - TABLE.x.mean(), (cells.site == "b") - 1 / 3, (cells.site == "c") - 1 / 3])
    means = flat["intercept"][:, None] + flat["coefficients"] @ columns.T
    expected = [np.average(means[:, rows], axis=1, weights=cells.people[rows]) for rows in ([0, 1], [2, 3])]
    assert found["state"].tolist() == ["N", "S"]
    np.testing.assert_allclose(found["mean"], [each.mean() for each in expected], rtol=1e-6)
    np.testing.assert_allclose(found["sd"], [each.std(ddof=1) for each in expected], rtol=1e-6)
    whole = bm.effects("old", predictions=True, cells=cells, weight="people")
    np.testing.assert_allclose(whole["mean"], np.average(means, axis=1, weights=cells.people).mean(), rtol=1e-6)
    cells.loc[1, "people"] = -1
    cells.to_csv("cells.csv")
    assert main(["effects", "old", "--cells", "cells.csv", "--weight", "people"]) != 0
    assert main(["effects", "old", "--cells", "cells.csv", "--weight", "peple"]) != 0
