"""Claims at the end of the workflow: judged by what is there, linked from the index, and nothing is run for them."""

from __future__ import annotations

import csv
from typing import Any

PUBLISHED = """
pieces:
- title: A piece
  claims:
    X1:
      statement: a statement
      rules:
      - kind: statistical
        check: accuracy
        again: accuracy_again
        tolerance: 0.9
        agreement: 1.0e-3
        at: {experiment: digits}
        numbers:
          accuracy: {published: "0.9", which: average}
      - kind: hardware
        hardware: another
        unit: 1/s
        check: gradients_a_second
        numbers:
          gradients a second: {published: "1", experiment: digits}
      - kind: hardware
        hardware: another
        check: cell
        numbers:
          elsewhere: {published: "1", file: other/a.csv, column: b}
"""
INPUTS = """FOLDERS, BENCHMARKS = ("digits", "other"), ()\n"""


def test_claims_of_a_finished_run(workspace: Any) -> None:
    source = workspace.root / "src"
    claims, stage = (
        source / "bayesmesh_reproduction" / "claims",
        source / "bayesmesh" / "workflow" / "stages" / "analyse.py",
    )
    with workspace.changed(claims / "published.yaml", PUBLISHED), workspace.changed(claims / "inputs.py", INPUTS):
        # Other code of a stage would make its results again, if claims asked for them.
        with workspace.changed(stage, stage.read_text() + "\n# other code\n"):
            assert workspace.planned("claims") == ["Check the published claims against stored results"]
        done = workspace.snakemake("--cores", "1", "claims")
        assert done.returncode == 0, done.stderr
        assert workspace.planned("claims") == []
    with (workspace.results / "reproduction" / "claims.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["verdict"] for row in rows] == ["holds", "measured", "not run"], rows
    assert float(rows[1]["ours"]) > 0
    assert rows[1]["our_hardware"].startswith("cpu; ")
    assert '<a href="reproduction/index.html">Reproduction</a>' in (workspace.results / "index.html").read_text()
