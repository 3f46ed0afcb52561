"""The tutorials about a table, run as they are written."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tool_modules import load_tool

gallery = load_tool("gallery")


def lay_out_tutorials(workspace: Any) -> None:
    """Write the table and the experiments of the tutorials."""
    subprocess.run([sys.executable, "-c", gallery.shown("csv-to-decision", "python")], cwd=workspace.root, check=True)
    for name, page in gallery.EXPERIMENTS.items():
        workspace.experiment(name).write_text(gallery.shown(page, "yaml"), encoding="utf-8")


def test_the_first_tutorial_runs_and_the_others_are_planned(fresh: Any, tmp_path: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    lay_out_tutorials(workspace)
    done = workspace.snakemake("--cores", "2", "flats")
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.search(r"^flats +pass +refuted", workspace.run("bayesmesh.cli", "status").stdout, re.MULTILINE)
    planned = workspace.snakemake("-n", *gallery.EXPERIMENTS)
    assert planned.returncode == 0, planned.stderr[-4000:]
    # The towns, and the three members of the sweep; the table is read already.
    assert re.search(r"^sample +4$", planned.stdout, re.MULTILINE)
    assert not re.search(r"^(fetch|shard) ", planned.stdout, re.MULTILINE)


@pytest.mark.nightly
def test_a_table_leads_to_predictions(fresh: Any, tmp_path: Path) -> None:
    workspace = fresh(tmp_path / "copy")
    subprocess.run([sys.executable, "-c", gallery.shown("csv-to-decision", "python")], cwd=workspace.root, check=True)
    pages = {"flats": "csv-to-decision", "flats-towns": "hierarchical-model", "flats-sweep": "sweep"}
    for name, page in pages.items():
        workspace.experiment(name).write_text(gallery.shown(page, "yaml"))
    done = workspace.snakemake("--cores", "2", *pages)
    assert done.returncode == 0, done.stderr[-4000:]
    status = workspace.run("bayesmesh.cli", "status").stdout
    assert re.search(r"^flats +pass +refuted", status, re.MULTILINE)
    assert re.search(r"^flats-towns +pass +not refuted", status, re.MULTILINE)
    done = workspace.run("bayesmesh.cli", "compare", "flats", "flats-towns")
    assert "flats-towns predicts best" in done.stderr
    assert (workspace.results / "flats-sweep" / "comparison.html").exists()
    done = workspace.run("bayesmesh.cli", "predict", "flats-towns", "--table", "offers.csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((workspace.root / "offers-predicted.csv").read_text().splitlines()))
    assert len(rows) == 3
    assert all(float(row["price_low"]) < float(row["mean_low"]) < float(row["price_mean"]) for row in rows)
