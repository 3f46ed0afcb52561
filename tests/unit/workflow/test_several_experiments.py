"""An analysis that names other experiments: their posteriors are inputs, their models code, their parts specified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from snakemake.iocontainers import Wildcards

from bayesmesh.config.declarations import AnalysisDeclaration, list_analyses
from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.workflow.jobs import make_job, parse_spec
from bayesmesh.workflow.plan import Plan

TEXT = "title: {title}\ndata: {{source: digits}}\nmodel: {{name: {model}}}\nkernel: {{name: hmc}}\n{more}\n"
OWN_MODEL = "from bayesmesh.models.base import Model\nfrom bayesmesh.config.settings import Settings\n"
OWN_MODEL += "class Options(Settings):\n    pass\nclass Mine(Model):\n    pass\n"


@pytest.fixture
def analysis() -> AnalysisDeclaration:
    """An analysis that reads posterior and data."""
    return next(each for each in list_analyses() if each.needs_of_model and "data" in each.reads)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, analysis: AnalysisDeclaration) -> Plan:
    """Experiment a asks for it and names b, whose model is the user's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(OWN_MODEL)
    folder = tmp_path / "config" / "experiments"
    folder.mkdir(parents=True)
    more = f"{analysis.name}: {{}}"
    (folder / "a.yaml").write_text(TEXT.format(title="A", model="softmax_regression", more=more))
    (folder / "b.yaml").write_text(TEXT.format(title="B", model="'own_model:Mine'", more=""))
    (folder.parent / "config.yaml").write_text("experiments: [a]\n")

    def named(experiment: Any, name: str) -> tuple[str, ...]:
        return ("b",) if experiment.title == "A" and name == analysis.name else ()

    monkeypatch.setattr(ExperimentBase, "named_experiments", named)
    return Plan("config", "results")


def test_what_it_reads_of_all_experiments_are_inputs_of_its_rule(plan: Plan, analysis: AnalysisDeclaration) -> None:
    found = plan.inputs(analysis.verb)(Wildcards(fromdict={"experiment": "a"}))
    wanted = {str(p) for n in ("a", "b") for p in (plan.layout(n).posterior_hashes, plan.data_layout(n).sharded)}
    assert {path for path in found if "/seals/" not in path} == wanted
    # The data, which both share, have one record.
    assert sum("/seals/" in path for path in found) == 3


def test_its_specification_has_the_part_of_the_other_that_says_what_it_is(
    plan: Plan, analysis: AnalysisDeclaration
) -> None:
    spec = make_job(analysis.verb, "a", plan.experiments["a"], "results", plan.experiments)
    assert set(spec.others) == {"b"}
    assert parse_spec(spec.canonical(), analysis.verb) == spec
    other = spec.of("b")
    assert (other.experiment, other.model.name, other.others) == ("b", "own_model:Mine", {})
    assert analysis.name not in other.config
    alone = make_job(analysis.verb, "b", plan.experiments["b"], "results", plan.experiments)
    assert '"others"' not in alone.canonical(), "specifications of earlier runs stay as they are"


def test_its_code_has_the_models_of_all(plan: Plan, analysis: AnalysisDeclaration, tmp_path: Path) -> None:
    def codes(stage: str) -> tuple[str, str]:
        fresh = Plan("config", "results")
        return fresh.code(stage)({"experiment": "a"}), fresh.code(stage)({"experiment": "b"})

    before, sampled = codes(analysis.verb), codes("sample")
    (tmp_path / "own_model.py").write_text(OWN_MODEL + "\nA_CHANGE = 1\n")
    assert codes(analysis.verb)[0] != before[0]
    assert codes("sample")[0] == sampled[0], "what samples the first does not read the other"
