"""Many datasets from one file of an experiment to its page: a coordinate and a verdict each. tests/unit/sampling compares with separate runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import yaml

COUNTS = {"ash": 4, "elm": 7, "oak": 2}
MANY = {
    "title": "Sites",
    "data": {
        "source": "table", "files": ["data/sites.csv"], "fields": {"x": ["height", "width"], "site": "site"},
        "constants": {"noise_scale": 1.0}, "replicates": "site",
    },
    "model": {"name": "gaussian"},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 2},
    "sampling": {"chains": 4, "warmup": 20, "draws": 30, "seed": 1, "initial": {"method": "prior"}},
    "compute": {"dtype": "float64"},
}  # fmt: skip


def test_datasets_have_one_run_and_a_verdict_each(fresh: Any, tmp_path: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    generator = np.random.default_rng(1)
    rows = [(site, *generator.normal(size=2)) for site, count in COUNTS.items() for _ in range(count)]
    lines = [f"{site},{x:.4f},{y:.4f}" for site, x, y in generator.permutation(np.array(rows, object))]
    (workspace.root / "data").mkdir()
    (workspace.root / "data" / "sites.csv").write_text("\n".join(["site,height,width", *lines]) + "\n")
    workspace.experiment("sites").write_text(yaml.safe_dump(MANY))
    done = workspace.snakemake("--cores", "2", "sites")
    assert done.returncode == 0, done.stderr[-4000:]
    folder = workspace.results / "sites"
    tree = xr.open_datatree(folder / "posterior.zarr", engine="zarr")
    posterior = tree["posterior"].dataset
    assert posterior["mean"].dims == ("chain", "draw", "dataset", "mean_dim_0")
    assert posterior["dataset"].values.tolist() == list(COUNTS)
    verdicts = list(csv.DictReader((folder / "diagnostics" / "verdicts.csv").read_text().splitlines()))
    assert [row["dataset"] for row in verdicts] == list(COUNTS)
    counts = json.loads((folder / "diagnostics" / "verdict.json").read_text())["datasets"]
    assert sum(counts.values()) == len(COUNTS)
    assert counts["fail"] == [row["verdict"] for row in verdicts].count("fail")
    page = (folder / "report.html").read_text()
    assert f"{counts['pass']} of 3 datasets pass all gates" in page
    assert all(f'<th scope="row" class="mono">{site}</th>' in page for site in COUNTS)
    assert workspace.planned("sites") == []
    assert workspace.run("bayesmesh.cli", "verify", "sites").returncode == 0
    # A table that was edited.
    (folder / "diagnostics" / "verdicts.csv").write_text("dataset,verdict\nash,pass\n")
    assert "sites diagnose runs again: " in workspace.snakemake("-n", "sites").stderr
