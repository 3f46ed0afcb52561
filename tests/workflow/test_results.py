"""What a completed run leaves: a posterior that opens without us, a page, a ledger, specs that repeat a stage."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.store.layout import FAST_PATH, ROUNDED_LIKELIHOOD
from workspace import ROOT

GROUPS = [
    "constant_data",
    "log_likelihood",
    "observed_data",
    "posterior",
    "posterior_predictive",
    "sample_stats",
    "summaries",
]

# The current folder is not on the path of -P, and the package is made unimportable.
READER = """
import sys, json, warnings
sys.modules["bayesmesh"] = None
import arviz as az, numpy as np, xarray as xr
tree = xr.open_datatree(sys.argv[1], engine="zarr")
found = {"groups": sorted(tree.children), "dims": {}}
for name in ("posterior", "sample_stats", "log_likelihood", "posterior_predictive", "summaries"):
    found["dims"][name] = sorted({v.dims[:2] for v in tree[name].data_vars.values()})
    for variable in tree[name].data_vars.values():
        assert np.isfinite(np.asarray(variable, float)).all(), (name, variable.name)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of few draws
    summary = az.summary(tree, var_names=[sys.argv[2]])
    found["rows"] = len(summary)
    found["columns"] = list(summary.columns)
    found["r_hat"] = float(az.rhat(tree)[sys.argv[2]].max())
    found["elpd"] = float(az.loo(tree).elpd)
found["bfmi"] = np.asarray(az.bfmi(tree)["energy"] if hasattr(az.bfmi(tree), "keys") else az.bfmi(tree)).size
print(json.dumps(found))
"""


@pytest.mark.parametrize(("name", "variable", "count"), [("films", "user_biases", 12), ("digits", "biases", 10)])
def test_the_posterior_opens_without_us(completed: Any, tmp_path: Path, name: str, variable: str, count: int) -> None:
    environment = {k: v for k, v in completed.environment.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", READER, str(completed.results / name / "posterior.zarr"), variable],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(GROUPS) <= set(found["groups"])
    assert ("truth" in found["groups"]) == (name == "films"), "of simulated data alone"
    assert all(dims == [["chain", "draw"]] for dims in found["dims"].values()), found["dims"]
    assert found["rows"] == count
    assert {"mean", "sd", "r_hat"} <= set(found["columns"])
    assert found["r_hat"] > 0.9
    assert found["elpd"] < 0
    assert found["bfmi"] == 4
    root = json.loads((completed.results / name / "posterior.zarr" / "zarr.json").read_text())["attributes"]
    assert root.get(FAST_PATH) == ("MatrixFactorization.log_likelihood_and_gradient" if name == "films" else None)
    # In float64, only fast paths are compared with another density.
    assert (ROUNDED_LIKELIHOOD in root) == (name == "films")
    assert 0 < root.get(ROUNDED_LIKELIHOOD, 1e-9) < 1e-3, (
        completed.results / name / "logs" / "assemble.log"
    ).read_text()


def test_every_job_has_its_rows_in_the_ledger(completed: Any) -> None:
    with (completed.results / "films" / "ledger.csv").open() as file:
        rows = list(csv.DictReader(file))
    jobs = {row["job"] for row in rows}
    assert {"compile", "sample-group-000", "sample-group-001", "assemble", "diagnose", "recommend"} <= jobs
    assert {"compile", "warmup", "sample", "write", "join"} <= {row["phase"] for row in rows}


def test_status_names_every_verdict_and_the_report(completed: Any) -> None:
    done = completed.run("bayesmesh.cli", "status")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert lines["digits"][1:6] == ["fail", "not", "checked", "4", "20/20"]
    assert lines["films"][1:6] == ["fail", "not", "checked", "4", "8/8"]
    assert lines["report:"][1] == str(completed.results / "index.html")


PAGE = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
"""The reference of files and columns."""


def is_listed(name: str, words: Iterable[str]) -> bool:
    """Whether a word of the page is the name, a pattern for it, or a folder above it."""
    patterns = [re.sub(r"<\w+>|\.\.\.", "*", word) for word in words]
    return any(fnmatch(name, f"{each}*" if each.endswith(("/", ".zarr")) else each) for each in patterns)


def words_of(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def test_the_reference_lists_every_file(completed: Any) -> None:
    words, results = words_of(PAGE), completed.results
    for folder, others in (
        (results / "digits", ()),
        (results / "films", ()),
        (results, ("digits/", "films/", "README.md")),
    ):
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        assert not [name for name in names if not name.startswith(others) and not is_listed(name, words)]


def test_the_reference_lists_every_column_and_group(completed: Any) -> None:
    sections = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)
    missing = []
    for path in sorted(completed.results.rglob("*.csv")):
        name = path.relative_to(completed.results).as_posix().partition("/")[2]
        heads = [section.partition("\n")[0] for section in sections]
        about = "".join(s for s, head in zip(sections, heads, strict=True) if is_listed(name, words_of(head)))
        columns = next(csv.reader(path.read_text(encoding="utf-8").splitlines()))
        missing += [f"{name}: {column}" for column in columns if not is_listed(column, words_of(about))]
    for name in ("digits", "films"):
        groups = [each.name for each in (completed.results / name / "posterior.zarr").iterdir() if each.is_dir()]
        missing += [f"posterior.zarr: {group}" for group in groups if f"| `{group}` |" not in PAGE]
    assert not missing
