"""Claims at the end of the workflow: judged by what is there, linked from the index, and nothing is run for them."""

from __future__ import annotations

import csv
from typing import Any

import yaml

NUMBER = {
    "published": "0.9",
    "tolerance": 0.9,
    "agreement": 1e-3,
    "measure": {"file": "digits/averaging/scores.csv", "column": "average_accuracy", "statistic": "last"},
    "witness": {"witness": "softmax_accuracy", "experiment": "digits", "which": "average"},
}
SPEED = {
    "kind": "hardware", "published": "1", "hardware": "another", "unit": "1/s",
    "measure": {
        "ratio": {
            "of": {"file": "digits/ledger.csv", "where": {"phase": "sample"}, "column": "gradients", "statistic": "sum"},
            "to": {"file": "digits/ledger.csv", "where": {"phase": "sample"}, "column": "seconds", "statistic": "sum"},
        }
    },
}  # fmt: skip
ELSEWHERE = {
    "kind": "hardware",
    "published": "1",
    "hardware": "another",
    "measure": {"file": "other/a.csv", "column": "b"},
}
CLAIM = {"source": "s", "statement": "a", "kind": "statistical", "numbers": {"1": NUMBER, "2": SPEED, "3": ELSEWHERE}}


def test_claims_of_a_finished_run(workspace: Any) -> None:
    path = workspace.root / "config" / "claims.yaml"
    path.write_text(yaml.safe_dump({"sources": {"s": {"title": "A piece"}}, "claims": {"X1": CLAIM}}))
    # Other code of a stage would make its results again, if claims asked for them.
    stage = workspace.root / "src" / "bayesmesh" / "stages" / "analyse.py"
    with workspace.changed(stage, stage.read_text() + "\n# other code\n"):
        assert workspace.planned("claims") == ["Check the published claims against stored results"]
    done = workspace.snakemake("--cores", "1", "claims")
    assert done.returncode == 0, done.stderr
    with (workspace.results / "reproduction" / "claims.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["verdict"] for row in rows] == ["holds", "measured", "not run"], rows
    assert float(rows[1]["ours"]) > 0
    assert rows[1]["our_hardware"].startswith("cpu; ")
    assert workspace.planned("claims") == []
    assert workspace.planned() == ["Write the index of all experiments"]
    done = workspace.run("bayesmesh.cli", "index")
    assert done.returncode == 0, done.stderr
    assert '<a href="reproduction/index.html">Published claims</a>' in (workspace.results / "index.html").read_text()
