"""A user's analysis is a stage like those of the package: what it reads, what it writes, and what its code changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesmesh.config.experiment import ExperimentBase, experiment_class
from bayesmesh.config.registry import forget_files
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.code import stage_code
from bayesmesh.workflow.components import make_analysis
from bayesmesh.workflow.flow import list_analysis_rules, stages_of
from bayesmesh.workflow.jobs import later_stages, make_job, parse_spec

CODE = """
from bayesmesh.analyses.base import Analysis
from bayesmesh.config.settings import Settings
from pydantic import Field
from own_parts import PART

class Options(Settings):
    '''Tails.'''

    level: float = Field(0.9, gt=0, lt=1, description="Level.")

class Tails(Analysis):
    outputs = ("tails.csv", "draws.zarr")
    reads = ("posterior",)

    def run(self, subject, others, files): ...
"""
NAME = "own_analysis:Tails"
CONFIG = {
    "title": "A", "data": {"source": "gaussian"}, "model": {"name": "gaussian"}, "kernel": {"name": "hmc"},
    "analyses": {NAME: {"level": 0.5}},
}  # fmt: skip


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentBase:
    """An experiment that asks for it, in a folder with its code, which is the current one."""
    (tmp_path / "own_analysis.py").write_text(CODE)
    (tmp_path / "own_parts.py").write_text("PART = 1\n")
    monkeypatch.chdir(tmp_path)
    forget_files()
    return experiment_class().model_validate(CONFIG)


def test_it_is_a_stage_of_the_experiments_that_ask_for_it(experiment: ExperimentBase) -> None:
    assert stages_of(experiment)[-3:] == ["diagnose", NAME, "report"]
    assert later_stages(experiment) == [NAME, "assemble"]
    other = experiment_class().model_validate({**CONFIG, "analyses": {}})
    assert NAME not in stages_of(other)
    assert "analyses" not in make_job("report", "x", other, "r").config


def test_its_specification_holds_what_it_reads(experiment: ExperimentBase) -> None:
    spec = make_job(NAME, "x", experiment, "r")
    assert set(spec.config) == {"compute", "analyses"}
    assert spec.config["analyses"] == {NAME: {"level": 0.5}}
    assert make_analysis(spec).options.model_dump() == {"level": 0.5}
    assert parse_spec(spec.canonical(), "analyse") == spec
    with pytest.raises(ConfigError, match=f"is a specification of '{NAME}', not of 'average'"):
        parse_spec(spec.canonical(), "average")
    wrong = json.dumps({**json.loads(spec.canonical()), "config": {**spec.config, "analyses": {NAME: {"level": 2}}}})
    with pytest.raises(ConfigError, match=r"x\.yaml: key 'analyses\.own_analysis:Tails\.level': should be"):
        make_analysis(parse_spec(wrong, "analyse"))


def test_its_job_writes_what_it_declares_and_the_page_reads_it(experiment: ExperimentBase) -> None:
    job = make_job(NAME, "x", experiment, "r")
    assert job.name == "tails"
    assert [str(path) for path in job.outputs] == ["r/x/tails/tails.csv", "r/x/tails/draws.zarr"]
    assert job.inputs == (Path("r/x/posterior.zarr"),)
    assert set(job.outputs) <= set(make_job("report", "x", experiment, "r").inputs)


def test_an_edit_of_its_code_concerns_it_and_the_page_alone(experiment: ExperimentBase) -> None:
    def prints() -> dict[str, str]:
        forget_files()
        return {stage: stage_code(make_job(stage, "x", experiment, "r")) for stage in stages_of(experiment)}

    before = prints()
    with Path("own_analysis.py").open("a") as handle:
        handle.write("OTHER = 1\n")
    after = prints()
    assert {stage for stage in before if before[stage] != after[stage]} == {NAME, "report"}


def test_profiles_know_its_rule(experiment: ExperimentBase, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "experiments"
    folder.mkdir(parents=True)
    shipped = list_analysis_rules()
    assert "tails" not in shipped
    (folder / "x.yaml").write_text(f"title: 'A: b'\nmodel: {{name: own_parts:PART}}\nanalyses:\n  {NAME}: {{}}\n")
    assert list_analysis_rules() == [*shipped, "tails"]
