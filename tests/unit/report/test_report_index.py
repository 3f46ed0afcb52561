"""The index of experiments, and the imports of the report."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.report.report_index import read_index_row, write_index
from bayesmesh.stages.report import run_index
from bayesmesh.store.layout import ExperimentLayout

ASKED = {"averaging": {}, "recommendation": {}}


def test_index_reads_the_numbers_of_each_experiment(complete: ExperimentLayout) -> None:
    complete.page.touch()
    row = read_index_row(complete.results, {"experiment": "everything", "title": "Digits", "analyses": ASKED})
    assert (row["verdict"], row["draws"], row["divergences"]) == ("pass", "4 × 600", "0")
    assert row["link"] == "everything/report.html"
    assert row["score"] == "accuracy 0.9263, NDCG × 1.87 ± 0.03 of popularity"
    assert row["seconds"] == "6 min 20 s"
    (complete.folder / "averaging" / "scores.csv").unlink()
    page = {"experiment": "everything", "analyses": ASKED}
    assert read_index_row(complete.results, page)["score"] == "NDCG × 1.87 ± 0.03 of popularity"
    assert read_index_row(complete.results, {"experiment": "everything"})["score"] == "", "files of an earlier request"


def test_index_lists_failed_and_unfinished_experiments(minimal: Callable[..., ExperimentLayout]) -> None:
    layout = minimal(verdict="fail", value=1.5)
    pages = [
        {"experiment": "small", "title": "<script>x</script>"},
        {"experiment": "later", "title": "Later", "category": "Other"},
    ]
    text = write_index(layout.results, pages).read_text(encoding="utf-8")
    assert "1 failed" in text
    assert "1 not finished" in text
    assert "✗ failed" in text
    assert "1.5000" in text
    assert "Other" in text
    assert text.count("<script") == 1, "that of the page"
    assert 'href="later' not in text


def test_an_experiment_that_cannot_be_read_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    text = "title: T\ndata: {source: digits}\nmodel: {name: softmax_regression}\nkernel: {name: hmc}\n"
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [locked, closed, later]\n")
    for name in ("locked", "closed", "later"):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").write_text(text)
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
    assert "seals/locked/.diagnose.lock: is a folder, not a lock" in shown
    assert "closed/report.html: cannot be read: Permission denied" in shown


def test_damaged_results_are_named_instead_of_shown_and_older_ones_marked(
    complete: ExperimentLayout, minimal: Callable[..., ExperimentLayout]
) -> None:
    damage = f"{complete.verdict}: has been altered"
    row = read_index_row(complete.results, {"experiment": "everything", "analyses": ASKED, "damage": damage})
    assert (row["verdict"], row["r_hat"], row["score"]) == ("damaged", "", "")
    assert row["note"] == "everything/diagnostics/verdict.json: has been altered"
    row = read_index_row(complete.results, {"experiment": "everything", "older": "average"})
    assert (row["verdict"], row["note"]) == ("pass", "older than the configuration: average")
    layout = minimal()
    layout.verdict.write_text("{")
    text = write_index(layout.results, [{"experiment": "small"}]).read_text(encoding="utf-8")
    assert "1 damaged" in text
    assert "verdict.json: is damaged" in text


def test_report_imports_nothing_heavy() -> None:
    forbidden = {"jax", "tensorflow_probability", "snakemake", "matplotlib.pyplot", "arviz", "xarray", "pandas"}
    code = f"import sys, bayesmesh.report.report_index; print(sorted({forbidden!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
