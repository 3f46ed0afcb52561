"""A change re-runs the stages that it concerns, and no others: a dry run after each edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

INDEX = "Write the index of all experiments"

FILMS_END = [INDEX, "Report films"]
FILMS_FROM_POSTERIOR = ["Assemble the posterior of films", "Diagnose films", "Recommend films in films", *FILMS_END]
FILMS_FROM_SAMPLING = ["Sample films, group-000", "Sample films, group-001", *FILMS_FROM_POSTERIOR]
FILMS_FROM_COMPILE = ["Compile the programs of films", *FILMS_FROM_SAMPLING]
FILMS_FROM_SHARD = ["Shard dataset films, split held-out", *FILMS_FROM_COMPILE]
AVERAGE = "Average the predictions of digits over its draws"
DIGITS_END = [INDEX, "Report digits"]

EDITS: list[tuple[str, str, Any, list[str]]] = [
    ("films", "report.caption", "Another paragraph", FILMS_END),
    ("films", "gates.ess_bulk", 40, ["Diagnose films", *FILMS_END]),
    ("films", "sampling.draws", 12, FILMS_FROM_SAMPLING),
    ("films", "model.prior_scale", 2.0, FILMS_FROM_COMPILE),
    ("films", "data.held_out_fraction", 0.3, FILMS_FROM_SHARD),
    ("digits", "averaging.calibration_bins", 10, [AVERAGE, *DIGITS_END]),
]

SOURCES: list[tuple[str, list[str]]] = [
    ("analyses/averaging/section.py", [AVERAGE, *DIGITS_END]),
    ("kernels/hmc.py", FILMS_FROM_COMPILE),
    ("data/sources/films.py", ["Fetch dataset films", *FILMS_FROM_SHARD]),
    ("sampling/program/chain_group.py", []),
]
"""Edits of more keys and files: tests/unit/workflow/test_code.py."""


def test_a_second_run_has_nothing_to_do(workspace: Any) -> None:
    assert workspace.planned() == []
    done = workspace.snakemake("--cores", "2")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr


@pytest.mark.parametrize(("name", "key", "value", "stages"), EDITS, ids=lambda v: v if isinstance(v, str) else "")
def test_an_edit_of_one_key_plans_what_reads_it(
    workspace: Any, name: str, key: str, value: object, stages: list[str]
) -> None:
    path = workspace.experiment(name)
    with workspace.changed(path, path.read_text()):
        workspace.set(name, key, value)
        assert workspace.planned() == sorted(stages)


@pytest.mark.parametrize(("file", "stages"), SOURCES, ids=[file for file, _ in SOURCES])
def test_an_edit_of_one_source_file_plans_the_stages_that_name_it(workspace: Any, file: str, stages: list[str]) -> None:
    path = workspace.root / "src" / "bayesmesh" / file
    with workspace.changed(path, path.read_text() + "\nA_CHANGE = 1\n"):
        assert workspace.planned() == sorted(stages)


def test_how_the_yaml_is_written_does_not_matter(workspace: Any) -> None:
    path = workspace.experiment("films")
    value = yaml.safe_load(path.read_text())
    other = "# A comment.\n" + yaml.safe_dump(dict(reversed(value.items())), default_flow_style=True)
    with workspace.changed(path, other):
        assert workspace.planned() == []


def test_a_further_experiment_runs_by_itself(workspace: Any) -> None:
    value = yaml.safe_load(workspace.experiment("films").read_text())
    del value["recommendation"]
    with workspace.changed(workspace.experiment("more-films"), yaml.safe_dump(value)):
        assert workspace.planned() == [], "a file that config.yaml does not list is no work"
        jobs = workspace.planned("more-films")
    # It shares the data, whichever experiment asked for them first.
    assert not [job for job in jobs if job.startswith(("Fetch", "Shard"))]
    assert "Compile the programs of more-films" in jobs
    assert not [job for job in jobs if job.endswith(" films")]


NEW_ANALYSIS = """
from pydantic import Field

from bayesmesh.analyses.base import Analysis
from bayesmesh.config.settings import Settings


class Options(Settings):
    \"\"\"A comparison.\"\"\"

    experiments: tuple[str, ...] = Field((), description="Others.")


class Contrast(Analysis):
    pretty_name = "Contrast"
    outputs = ("contrast.csv",)
    reads = ("posterior", "verdict")
"""


def test_an_analysis_of_several_experiments_follows_a_change_of_any_of_them(workspace: Any) -> None:
    analysis = workspace.root / "src" / "bayesmesh" / "analyses" / "contrast.py"
    path = workspace.experiment("films")
    asking = yaml.safe_dump({**yaml.safe_load(path.read_text()), "contrast": {"experiments": ["digits"]}})
    digits = workspace.experiment("digits")
    with (
        workspace.changed(analysis, NEW_ANALYSIS),
        workspace.changed(path, asking),
        workspace.changed(digits, digits.read_text()),
    ):
        assert workspace.planned("films") == sorted(["Contrast of films", "Report films"])
        workspace.set("digits", "gates.ess_bulk", 40)
        assert workspace.planned("films") == sorted(["Contrast of films", "Diagnose digits", "Report films"])
        workspace.set("digits", "contrast", {"experiments": ["films"]})
        done = workspace.snakemake("-n", "films")
    assert done.returncode == 2, done.stderr
    assert "key 'contrast.experiments': the request is circular: digits -> films -> digits" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_dry_run_imports_no_array_library(workspace: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        f"atexit.register(lambda: open({str(tmp_path / 'modules')!r}, 'a').write(' '.join(sys.modules) + '\\n'))\n"
    )
    path = [str(tmp_path), str(workspace.root / "src")]
    done = workspace.snakemake("-n", "--forceall", PYTHONPATH=":".join(path))
    assert done.returncode == 0
    assert "Sample films, group-001" in done.stdout + done.stderr
    modules = set((tmp_path / "modules").read_text().split())
    assert "bayesmesh.workflow.plan" in modules
    heavy = {"jax", "jaxlib", "tensorflow", "tensorflow_probability", "tensorflow_datasets", "zarr", "xarray", "arviz"}
    assert not modules & heavy


def test_deleted_results_are_made_again_and_a_dry_run_only_says_so(workspace: Any) -> None:
    summary, record = (
        workspace.results / "films/diagnostics/summary.csv",
        workspace.results / "seals/films/diagnose.json",
    )
    before, recorded = summary.read_bytes(), record.read_bytes()
    summary.unlink()
    sentence = f"films diagnose runs again: {summary.relative_to(workspace.root)}: is missing"
    planned = workspace.snakemake("-n")
    assert sentence in planned.stdout + planned.stderr
    assert record.read_bytes() == recorded
    # Jobs for the posterior alone do not need it, and the record comes back.
    done = workspace.snakemake("--cores", "2", "results/films/posterior.sha256")
    assert (done.returncode, record.read_bytes()) == (0, recorded), done.stderr
    done = workspace.snakemake("--cores", "2")
    assert done.returncode == 0, done.stderr
    assert sentence in done.stdout + done.stderr
    assert summary.read_bytes() == before
    assert record.read_bytes() != recorded
    assert not list(workspace.results.rglob("*.aside"))
    assert workspace.planned() == []


def test_a_dry_run_writes_nothing(workspace: Any) -> None:
    def files() -> set[Path]:
        return set(workspace.results.rglob("*"))

    before = files()
    path = workspace.experiment("films")
    with workspace.changed(path, path.read_text()):
        workspace.set("films", "sampling.draws", 100)
        assert workspace.planned() != []
    assert files() == before
