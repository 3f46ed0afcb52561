"""The index of experiments, and the imports of the report."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bayesmesh.report.index import read_index_row
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.workflow.components import requested_analyses
from bayesmesh.workflow.stages.report import run_index

ASKED = requested_analyses({"averaging": {}, "recommendation": {}}, Path("everything.yaml"))


def test_index_reads_the_numbers_of_each_experiment(complete: ExperimentLayout) -> None:
    complete.page.touch()
    row = read_index_row(complete.results, {"experiment": "everything", "title": "Digits", "analyses": ASKED})
    assert (row["verdict"], row["draws"], row["divergences"]) == ("pass", "4 × 600", "0")
    assert row["link"] == "everything/report.html"
    assert row["score"] == "accuracy 0.9263, NDCG × 1.87 ± 0.03 of popularity"
    assert row["seconds"] == "6 min 20 s"
    shutil.rmtree(complete.folder / "averaging")
    page = {"experiment": "everything", "analyses": ASKED}
    assert read_index_row(complete.results, page)["score"] == "NDCG × 1.87 ± 0.03 of popularity"
    assert read_index_row(complete.results, {"experiment": "everything"})["score"] == "", "files of an earlier request"


def test_an_experiment_that_cannot_be_read_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results = tmp_path / "results"
    text = "title: T\ndata: {source: digits}\nmodel: {name: softmax_regression}\nkernel: {name: hmc}\n"
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [locked, closed, later]\n")
    for name in ("locked", "closed", "later"):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").write_text(text)
    (tmp_path / "config" / "experiments" / "other.yaml").write_text(f"{text}nothing: 1\n")
    (results / "seals" / "locked" / ".diagnose.lock").mkdir(parents=True)
    closed, exists = Path("results", "closed"), Path.exists

    def refuse(path: Path) -> bool:
        if closed in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    # The permissions of a folder do not concern the superuser, who may run the tests.
    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.chdir(tmp_path)
    assert run_index(argparse.Namespace(code="")) == 0
    shown = (results / "index.html").read_text()
    assert "2 damaged" in shown
    assert "other.yaml" not in caplog.text, "planning has warned of it"
    assert "seals/locked/.diagnose.lock: a folder, not a lock" in shown
    assert "closed/report.html: cannot be read: Permission denied" in shown


def test_report_imports_nothing_heavy() -> None:
    forbidden = {"jax", "tensorflow_probability", "snakemake", "matplotlib.pyplot", "arviz", "xarray", "pandas"}
    code = f"import sys, bayesmesh.report.index; print(sorted({forbidden!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
