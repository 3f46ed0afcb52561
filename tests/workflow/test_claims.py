"""Claims at the end of the workflow: judged by what is there, linked from the index, and nothing is run for them."""

from __future__ import annotations

import csv
from typing import Any

PUBLISHED = '''
"""Claims on the experiments of this workspace."""

import numpy as np

from bayesmesh.reproduction.claims.claim import Claim, Source
from bayesmesh.reproduction.claims.recomputed import softmax_accuracies

X1 = Claim("X1", Source("A piece"), "a statement")


@X1.statistical(
    ("accuracy", "0.9"), tolerance=0.9, agreement=1e-3, again=lambda results: softmax_accuracies(results, "digits")["average"]
)
def accuracy(results):
    return results.rows("digits/averaging/scores.csv").last().only("average_accuracy")


@X1.hardware(("gradients a second", "1"), unit="1/s", on="another")
def gradients_a_second(results):
    rows = results.rows("digits/ledger.csv", phase="sample")
    return rows.over("gradients", np.sum) / rows.over("seconds", np.sum)


@X1.hardware(("elsewhere", "1"), on="another")
def elsewhere(results):
    return results.rows("other/a.csv").only("b")


CLAIMS = (X1,)
'''
INPUTS = """FOLDERS = ("digits", "other")\n"""


def test_claims_of_a_finished_run(workspace: Any) -> None:
    package = workspace.root / "src" / "bayesmesh"
    claims, stage = package / "reproduction" / "claims", package / "stages" / "analyse.py"
    with workspace.changed(claims / "claim_list.py", PUBLISHED), workspace.changed(claims / "inputs.py", INPUTS):
        # Other code of a stage would make its results again, if claims asked for them.
        with workspace.changed(stage, stage.read_text() + "\n# other code\n"):
            assert workspace.planned("claims") == ["Check the published claims against stored results"]
        done = workspace.snakemake("--cores", "1", "claims")
        assert done.returncode == 0, done.stderr
        assert workspace.planned("claims") == []
        assert workspace.planned() == ["Write the index of all experiments"]
    with (workspace.results / "reproduction" / "claims.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["verdict"] for row in rows] == ["holds", "measured", "not run"], rows
    assert float(rows[1]["ours"]) > 0
    assert rows[1]["our_hardware"].startswith("cpu; ")
    done = workspace.run("bayesmesh.cli", "index")
    assert done.returncode == 0, done.stderr
    assert '<a href="reproduction/index.html">Published claims</a>' in (workspace.results / "index.html").read_text()
