"""Cross-validation from the file of an experiment to its page: folds are sampled as jobs of their own, and scored."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml

WHOLE = """\
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp


def density(latents, data):
    rows = data["x"] - latents["level"]
    return tfp.distributions.Normal(jnp.zeros((), rows.dtype), jnp.ones((), rows.dtype)).log_prob(rows).sum()


def of_order(latents, data):
    return density(latents, {"x": data["x"][1:] - 0.5 * data["x"][:-1]})
"""

FOLDED = {
    "title": "Folds",
    "data": {"source": "gaussian", "num_rows": 30},
    "model": {"name": "log_density", "function": "whole:density", "prior": {"level": "normal(0, 1)"}},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 4},
    "sampling": {"chains": 4, "warmup": 50, "draws": 100},
    "k_fold": {"folds": 2},
}


@pytest.mark.nightly
def test_folds_are_sampled_after_the_check_of_the_whole_and_scored(fresh: Any, tmp_path: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    (workspace.root / "whole.py").write_text(WHOLE)
    refused = {**FOLDED, "model": {**FOLDED["model"], "function": "whole:of_order"}}
    workspace.experiment("trial").write_text(yaml.safe_dump(refused))
    done = workspace.snakemake("--cores", "2", "--keep-going", "trial")
    assert "depends on the order of the rows" in done.stderr
    assert not list(workspace.results.glob("trial-fold-*/program/audit.json")), "no fold compiles before the whole"
    workspace.experiment("trial").write_text(yaml.safe_dump(FOLDED))
    done = workspace.snakemake("--cores", "2", "trial")
    assert done.returncode == 0, done.stderr[-4000:]
    rows = list(csv.DictReader((workspace.results / "trial" / "k_fold" / "folds.csv").read_text().splitlines()))
    assert [row["experiment"] for row in rows] == ["trial-fold-1-of-2", "trial-fold-2-of-2"]
    assert [(row["num_rows"], row["num_training_rows"]) for row in rows] == [("15", "15")] * 2
    assert "each fold is scored as one" in (workspace.results / "trial" / "report.html").read_text()
    assert workspace.planned("trial") == []
