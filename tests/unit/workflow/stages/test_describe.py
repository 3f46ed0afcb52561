"""`bayesmesh describe` reads the data without sampling and says in words what would be sampled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesmesh.cli import main

EXPERIMENT = """
title: One
data: {source: table, files: t.csv, standardise: [x]}
model: {name: glm, formula: "alive ~ x * kind + (1 | site)", family: bernoulli}
"""


def test_the_design_and_what_the_prior_says_of_the_outcome_are_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    pd.DataFrame({
        "x": generator.normal(3, 2, 60), "kind": ["a", "b", "c"] * 20, "site": [f"s{i % 5}" for i in range(60)],
        "alive": ["no", "no", "yes"] * 20,
    }).to_csv("t.csv", index=False)  # fmt: skip
    Path("config/experiments").mkdir(parents=True)
    Path("config/config.yaml").write_text("experiments: [one]\n")
    Path("config/experiments/one.yaml").write_text(EXPERIMENT)
    assert main(["describe", "one"]) == 0
    text = capsys.readouterr().out
    for part in (
        "60 training rows", "alive: category of 2 levels with their rows: no (40), yes (20)",
        "x: number, standardised, mean ", "a (20), the first and reference, b (20), c (20)",
        "site: 5 levels, 12 rows each", "x, kind[b], kind[c], x:kind[b], x:kind[c]", "coefficients normal(0, 2.5)",
        "200 draws of the prior at 60 rows", "0.333",
    ):  # fmt: skip
        assert part in text, part
    assert not Path("results").exists()
    Path("config/experiments/one.yaml").write_text(EXPERIMENT.replace("bernoulli", "bernoulli, contrasts: {kind: sum}"))
    assert main(["describe", "one"]) == 0
    text = capsys.readouterr().out
    for part in (
        "a (20), b (20), c (20)",
        "x, kind[a], kind[b], x:kind[a], x:kind[b]",
        "levels of kind against the mean",
    ):
        assert part in text, part
    assert main(["describe", "two"]) == 2


def test_predictors_of_parameters_and_kinds_of_censoring_are_told_and_wrong_priors_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(
        {
            "y": np.arange(1, 13.0),
            "x": np.sin(np.arange(12)),
            "ended": ["none", "right", "none"] * 4,
            "place": "k",
            "days": 9.0,
        }
    ).to_csv("t.csv")
    model = "{name: glm, formula: y ~ x + (1 | place), family: weibull, censored: ended, exposure: days, parameters: {shape: ~ x}, priors: {PRIOR}}"
    experiment = f"title: One\ndata: {{source: table, files: t.csv}}\nmodel: {model}\n"
    Path("config/experiments").mkdir(parents=True)
    Path("config/config.yaml").write_text("experiments: [one]\n")
    Path("config/experiments/one.yaml").write_text(experiment.replace("PRIOR", ""))
    assert main(["describe", "one"]) == 0
    text = capsys.readouterr().out
    for part in (
        "Predictors      x: number",
        "per unit of days",
        "place: 1 level, 12 rows each",
        "Groups of one level place: one level does not",
        "Predictor of shape log(shape) ~ x",
        "censored as 'ended' says: none in 8 rows, right in 4 rows",
    ):
        assert part in text, part
    assert "days: number" not in text
    Path("config/experiments/one.yaml").write_text(experiment.replace("PRIOR", 'b: "normal(0, 1)"'))
    assert main(["describe", "one"]) == 2
    caught = capsys.readouterr()
    assert "config/experiments/one.yaml: key 'model.priors': the model has no 'b'" in caught.err
    assert not caught.out
