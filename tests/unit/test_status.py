"""status: one line per experiment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.experiment.plan import Plan
from bayesmesh.status import status_table

GOOD = "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Three experiments, of which one is listed."""
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [listed]\n")
    for name in ("listed", "other", "begun"):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").write_text(GOOD)
    return Plan(str(tmp_path / "config"), str(tmp_path / "results"))


def _finish(plan: Plan, name: str, r_hat: float | None) -> None:
    gates = [{"name": "r_hat", "value": r_hat}, {"name": "ess_bulk", "value": 1234.5}]
    verdict = {"verdict": "pass", "gates": gates, "num_chains": 4, "num_draws": 100, "num_divergences": 0}
    path = plan.layout(name).verdict
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(verdict))


def test_what_was_listed_or_begun_is_shown(plan: Plan) -> None:
    plan.layout("begun").folder.mkdir(parents=True)
    lines = status_table(plan).splitlines()
    assert [line.split()[0] for line in lines[:-2]] == ["experiment", "begun", "listed"]
    assert lines[-1] == "report: not written yet"


def test_a_finished_experiment_shows_its_numbers(plan: Plan) -> None:
    _finish(plan, "other", 1.00321)
    (row,) = [line for line in status_table(plan).splitlines() if line.startswith("other")]
    assert row.split() == ["other", "pass", "4", "100", "1.0032", "1234", "0"]


def test_a_number_that_is_not_there_is_a_dash(plan: Plan) -> None:
    _finish(plan, "other", None)
    (row,) = [line for line in status_table(plan).splitlines() if line.startswith("other")]
    assert row.split()[4] == "-"


def test_the_report_is_named_by_its_whole_path(plan: Plan) -> None:
    index = Path(plan.results) / "index.html"
    index.parent.mkdir()
    index.touch()
    assert status_table(plan).splitlines()[-1] == f"report: {index.resolve()}"


def test_a_damaged_verdict_is_named(plan: Plan) -> None:
    _finish(plan, "other", 1.0)
    plan.layout("other").verdict.write_text("{")
    with pytest.raises(StoreError, match=r"verdict\.json: is damaged"):
        status_table(plan)
