"""`bayesmesh compare` reads stored scores of experiments and of members of sweeps, and refuses what it cannot compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bayesmesh as bm
from bayesmesh.analyses.evidence.table import Estimate, write_evidence
from bayesmesh.cli import main
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.operations import verify_files
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.scores import RowScores, write_pointwise
from recording import record_as

EXPERIMENT = """
title: Some
data: {{source: gaussian}}
model: {{name: gaussian}}
kernel: {{name: hmc}}
loo: {{}}
{more}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two experiments and a sweep of three members; one member has no scores."""
    experiments = tmp_path / "config" / "experiments"
    experiments.mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [one, two]\n")
    for name in ("one", "two"):
        (experiments / f"{name}.yaml").write_text(EXPERIMENT.format(more=""))
    sweep = "sweep:\n  grid:\n    model.prior_scale: [1, 2, 3]\n"
    (experiments / "scales.yaml").write_text(EXPERIMENT.format(more=sweep))
    monkeypatch.chdir(tmp_path)
    base = np.random.default_rng(1).normal(-1, 1, 200)
    for i, name in enumerate(("one", "two", "scales-prior_scale-1", "scales-prior_scale-2")):
        store(tmp_path / "results", name, base - 0.1 * i)
    return tmp_path


def store(results: Path, name: str, elpd: np.ndarray) -> None:
    path = ExperimentLayout(results, name).folder / "loo" / "pointwise.zarr"
    path.parent.mkdir(parents=True)
    write_pointwise(path, RowScores(elpd, "rows", False, 4000), None)
    # Snakemake leaves it in folders that are outputs; Zarr would warn of it when it lists the group.
    (path / ".snakemake_timestamp").touch()
    record_as(results, name, "loo", [path])


def test_experiments_are_compared_on_a_page(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "two", "one"]) == 0
    page = project / "results" / "comparisons" / "two-one.html"
    assert "one predicts best on 200 rows" in page.read_text()
    assert "one predicts best on 200 rows" in capsys.readouterr().err
    assert page.with_suffix(".csv").read_text().startswith("model,elpd,")
    assert not verify_files.check(project / "results", "comparisons").wrong
    # Scores that change make the comparison outdated.
    store(project / "results", "three", np.zeros(200))
    path = project / "results" / "two" / "loo" / "pointwise.zarr"
    write_pointwise(path, RowScores(np.zeros(200), "rows", False, 4000), None)
    record_as(project / "results", "two", "loo", [path])
    assert "was made from another" in " ".join(verify_files.check(project / "results", "comparisons").outdated)


def test_models_have_probabilities_if_all_have_an_evidence_of_the_same_outcomes(project: Path) -> None:
    results = project / "results"
    for i, name in enumerate(("one", "two")):
        assert "log_evidence" in bm.compare("one", "two").table
        assert bm.compare("one", "two").table["probability"].isna().all()
        path = results / name / "evidence" / "evidence.csv"
        path.parent.mkdir()
        write_evidence(path, [Estimate("bridge", -20.0 - i, 0.01, digest="rows")])
        record_as(results, name, "evidence", [path])
    assert bm.compare("one", "two").table.loc["one", "probability"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert main(["compare", "one", "two"]) == 0
    assert "one has posterior probability 73.1%" in (results / "comparisons" / "one-two.html").read_text()
    write_evidence(path, [Estimate("bridge", -30.0, 0.01, digest="other")])
    with pytest.raises(StoreError, match="evidence"):
        bm.compare("one", "two")
    record_as(results, "two", "evidence", [path])
    assert bm.compare("one", "two").table["probability"].isna().all()
    assert "was made from another" in " ".join(verify_files.check(results, "comparisons").outdated)


def test_the_page_of_a_sweep_says_which_member_predicts_best(project: Path) -> None:
    page = project / "results" / "scales" / "comparison.html"
    assert main(["sweep", "scales"]) == 0
    assert "scales-prior_scale-1 predicts best on 200 rows" in page.read_text()
    assert "Pseudo-BMA+ weight" in page.read_text()
    # Another outcome is named in place of the table.
    path = project / "results" / "scales-prior_scale-2" / "loo" / "pointwise.zarr"
    write_pointwise(path, RowScores(np.zeros(200), "another", False, 4000), None)
    record_as(project / "results", "scales-prior_scale-2", "loo", [path])
    assert main(["sweep", "scales"]) == 0
    assert "cannot be compared" in page.read_text()
    assert "have different outcomes" in page.read_text()


def test_what_cannot_be_compared_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said_all = ""
    for words, said in (
        (["one", "twoo"], "no experiment or sweep 'twoo'"),
        (["one", "./one"], "no experiment or sweep './one'"),
        (["one", "seals"], "no experiment or sweep 'seals'"),
        (["one", "scales-prior_scale-3"], "has no scores by row in"),
        (["one", "two", "--name", "../x"], "not a valid name"),
        (["one"], "1 model with scores"),
    ):
        assert main(["compare", *words]) != 0
        assert said in (said_all := said_all + capsys.readouterr().err)
    assert "add `loo: {}` to the experiment" in said_all
    altered = next((project / "results" / "two" / "loo").rglob("zarr.json"))
    altered.write_text(altered.read_text() + " ")
    with pytest.raises(StoreError, match=r"zarr\.json"):
        bm.compare("one", "two")
    with pytest.raises(ConfigError, match="nothing is stored"):
        bm.compare("one", "nobody")
