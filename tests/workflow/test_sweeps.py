"""A sweep from its file to its page: members share data and programs, and the index is there without being asked for."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from workspace import ROOT

SWEPT = {
    "title": "Seeds & steps",
    "data": {"source": "gaussian"},
    "model": {"name": "gaussian"},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 4},
    "sampling": {"chains": 4, "warmup": 50, "draws": 100},
    "sweep": {"cases": [{"sampling.seed": seed, "kernel.initial_step_size": 0.1 * seed} for seed in (1, 2)]},
}
MEMBERS = ["trial-initial_step_size-0p1-seed-1", "trial-initial_step_size-0p2-seed-2"]


def test_members_share_data_and_programs_and_are_compared(fresh: Any, tmp_path: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    # The ledger is to show which programs are compiled, so none may be there.
    shutil.rmtree(workspace.results)
    workspace.experiment("trial").write_text(yaml.safe_dump(SWEPT))
    done = workspace.snakemake("--cores", "2", "trial")
    assert done.returncode == 0, done.stderr[-4000:]
    results = workspace.results
    assert len(list((results / "data").iterdir())) == 1
    phases = [
        row for name in MEMBERS for row in csv.DictReader((results / name / "ledger.csv").read_text().splitlines())
    ]
    # Members that compile side by side may each find no program yet.
    cold = [row["detail"] for row in phases if row["detail"].endswith(", cold")]
    assert set(cold) == {f"{program}, cold" for program in ("initialise", "segment")}
    assert len(cold) <= 4
    page = (results / "trial" / "comparison.html").read_text()
    assert all(f'href="../{name}/report.html"' in page for name in MEMBERS)
    rows = list(csv.DictReader((results / "trial" / "comparison.csv").read_text().splitlines()))
    assert {(row["member"], row["sampling.seed"]) for row in rows} == {(MEMBERS[0], "1"), (MEMBERS[1], "2")}
    assert all(float(row["q5"]) < float(row["mean"]) < float(row["q95"]) for row in rows)
    index = (results / "index.html").read_text()
    assert 'href="trial/comparison.html"' in index
    assert "2 members" in index
    assert workspace.planned("trial") == []
    assert workspace.run("bayesmesh.cli", "verify").returncode == 0
    # One member by its name, of a sweep with one more.
    workspace.set("trial", "sweep.cases", [*SWEPT["sweep"]["cases"], {"sampling.seed": 3}])
    assert "Sample trial-seed-3, group-000" in workspace.planned("trial-seed-3")
    assert workspace.planned(MEMBERS[0]) == []


@pytest.mark.nightly
def test_an_average_over_priors_and_models_is_at_least_as_good_as_the_best(fresh: Any, tmp_path: Path) -> None:
    """The sweep that the guide shows, with fewer members, folds and draws."""
    guide = (ROOT / "docs" / "how-to" / "comparison.md").read_text(encoding="utf-8")
    shown = yaml.safe_load(re.search(r"```yaml\n(# experiment\ntitle: Digits, an average.*?)```", guide, re.DOTALL)[1])
    shown["sampling"] |= {"chains": 4, "warmup": 200, "draws": 100}
    shown["k_fold"]["folds"] = 2
    shown["sweep"]["cases"] = [case for case in shown["sweep"]["cases"] if case["name"][-1] in "36"]
    workspace = fresh(tmp_path / "copy")
    workspace.experiment("trial").write_text(yaml.safe_dump(shown))
    done = workspace.snakemake("--cores", "2", "trial")
    assert done.returncode == 0, done.stderr[-4000:]
    done = workspace.run("bayesmesh.cli", "compare", "trial")
    assert done.returncode == 0, done.stderr
    assert "the average is worse than" not in done.stderr
    table = workspace.results / "comparisons" / "trial.csv"
    rows = {row["model"]: row for row in csv.DictReader(table.read_text().splitlines())}
    average = {key: float(value) for key, value in rows["(stacking)"].items() if key != "model" and value}
    assert len(rows) == 4 + 2
    for kind in ("elpd", "held_out"):
        assert average[f"{kind}_difference"] >= -2 * average[f"{kind}_difference_se"] - 0.1
