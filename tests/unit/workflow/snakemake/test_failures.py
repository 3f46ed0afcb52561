"""At the end of a run, failed jobs are named with their experiments, files and errors."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bayesmesh.errors import NOT_AGAIN
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.snakemake.failures import name_failures

GOOD = "title: A test\ndata: {source: gaussian%s}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"
ERROR = "10:00:01 error: data.csv, row 1: 'g' is not a number\n  remedy: correct the cell"


class Wildcards(list):
    """Values of wildcards, with their names, as Snakemake has them."""

    def __init__(self, **named: str) -> None:
        super().__init__(named.values())
        self.items = named.items


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [one]\n")
    for name, options in (("one", ""), ("two", ""), ("three", ""), ("other", ", num_rows: 77")):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").write_text(GOOD % options)
    return Plan()


def make_job(rule: str, said: str | None, **wildcards: str) -> Any:
    """Return a job with a log."""
    log = Path("logs") / f"{rule}-{'-'.join(wildcards.values())}.log"
    log.parent.mkdir(exist_ok=True)
    if said is not None:
        log.write_text(said)
    return type(
        "Job", (), {"rule": SimpleNamespace(name=rule), "log": [str(log)], "wildcards": Wildcards(**wildcards)}
    )()


def say(
    plan: Plan, capsys: pytest.CaptureFixture[str], *failed: Any, asked: tuple[str, ...] = ("one", "two", "other")
) -> str:
    """Return what is said of a run of some experiments."""
    jobs = [SimpleNamespace(wildcards=Wildcards(experiment=name)) for name in asked]
    plan.workflow = SimpleNamespace(scheduler=SimpleNamespace(failed=set(failed)), dag=SimpleNamespace(jobs=jobs))
    name_failures(plan)
    return capsys.readouterr().err


def test_data_are_those_of_the_experiments_that_were_asked_for(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job("fetch", f"10:00:00 fetch data\n{ERROR}\n10:00:01 {NOT_AGAIN}\n", dataset=plan.dataset("one"))
    assert say(plan, capsys, job) == (
        "failed: fetch of one, two (config/experiments/one.yaml, config/experiments/two.yaml)\n"
        "  data.csv, row 1: 'g' is not a number\n  remedy: correct the cell\n"
    )


def test_a_job_without_an_error_names_its_log(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    ended = make_job("sample", "10:00:00 draws 20 of 100\n", experiment="one", group="group-000")
    stale = make_job("report", ERROR, experiment="two")
    os.utime(stale.log[0], (0, 0))
    said = say(plan, capsys, ended, stale)
    assert (
        "failed: report of two (config/experiments/two.yaml)\n  ended without a message; see logs/report-two.log\n"
        in said
    )
    assert "failed: sample of one (config/experiments/one.yaml)\n  ended without a message; " in said


def test_of_jobs_that_run_together_the_one_that_failed_is_named(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    group = SimpleNamespace(
        jobs=[make_job("diagnose", ERROR, experiment="one"), make_job("report", None, experiment="one")]
    )
    said = say(plan, capsys, SimpleNamespace(**group.__dict__).jobs[0])
    assert said.count("failed: ") == 1
    together = type("Group", (), {"jobs": group.jobs})()
    assert say(plan, capsys, together) == said


def test_few_of_many_are_listed(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    said = say(plan, capsys, *(make_job("diagnose", ERROR, experiment=f"one-{i:02d}") for i in range(23)))
    assert said.count("failed: ") == 10
    assert said.endswith("and 13 more\n")
