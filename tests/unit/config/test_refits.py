"""Refits: experiments that analyses ask for, their names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.loading import load_configuration
from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.workflow.jobs import split_name
from bayesmesh.workflow.plan import Plan


@pytest.fixture
def folder(tmp_path: Path, good: str) -> Path:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "config.yaml").write_text("experiments: [trial]\n")
    (tmp_path / "experiments" / "trial.yaml").write_text(f"{good}loo: {{}}\nk_fold: {{folds: 3, strata: y}}\n")
    return tmp_path


NAMES = ("trial-fold-1-of-3", "trial-fold-2-of-3", "trial-fold-3-of-3")


def test_folds_are_experiments_without_analyses_that_differ_in_what_they_leave_out(folder: Path) -> None:
    found = load_configuration(folder)
    assert list(found.experiments) == ["trial", *NAMES]
    assert found.refits == {"trial": NAMES}
    whole, fold = found.experiments["trial"], found.experiments[NAMES[1]]
    assert whole.named_experiments("k_fold") == NAMES
    assert whole.named_experiments("loo") == fold.named_experiments("k_fold") == ()
    assert fold.requested_analyses() == {}
    assert fold.data.left_out == LeftOut(folds=3, fold=2, strata="y", asked_by="k_fold")
    assert fold.title.endswith(", without fold 2 of 3")
    assert (fold.sampling, fold.model, fold.kernel) == (whole.sampling, whole.model, whole.kernel)


def test_folds_share_the_dataset_and_have_splits_and_cores_of_their_own(folder: Path) -> None:
    plan = Plan(str(folder), str(folder / "results"))
    assert len({plan.dataset(name) for name in plan.experiments}) == 1
    assert len({plan.split(name) for name in plan.experiments}) == 4
    assert plan.split("trial") == "all"
    assert [plan.share(name, 6) for name in plan.experiments] == [6, 2, 2, 2]
    assert plan.shown_by_others() == set(NAMES)
    job = plan.job("k_fold", "trial")
    verdicts = [path.parts[-3] for path in job.inputs if path.name == "verdict.json"]
    assert verdicts == list(NAMES), "its own gates do not run it again"
    assert {path.parts[-2] for path in job.inputs if path.name == "posterior.zarr"} == {"trial", *NAMES}
    data = {"held_out_fraction": 0.2, "split_seed": 1, "left_out": {"fold": 1}}
    assert len({split_name(data), split_name({**data, "split_seed": 2}), split_name({**data, "left_out": None})}) == 3


def test_no_fold_is_compiled_before_the_whole_experiment_has_been_checked(folder: Path) -> None:
    """Otherwise hours of sampling may end in a refusal by the analysis."""
    compiled = Plan(str(folder), str(folder / "results")).inputs("compile")
    audit = str(folder / "results" / "trial" / "program" / "audit.json")
    for name in NAMES:
        (found,) = (each for each in compiled({"experiment": name}) if str(each) == audit)
        assert found.flags["ancient"], "it does not compile again where only that file is new"
    assert audit not in map(str, compiled({"experiment": "trial"}))


def test_folds_of_a_sweep_are_those_of_each_member(folder: Path) -> None:
    path = folder / "experiments" / "trial.yaml"
    path.write_text(f"{path.read_text()}sweep: {{grid: {{sampling.seed: [1, 2]}}}}\n")
    found = load_configuration(folder)
    assert list(found.refits) == ["trial-seed-1", "trial-seed-2"]
    assert len(found.experiments) == 8
    assert list(found.sweeps["trial"].members) == ["trial-seed-1", "trial-seed-2"]


def test_taken_names_and_refits_of_refits_are_refused(folder: Path, good: str) -> None:
    path = folder / "experiments" / "trial.yaml"
    (folder / "experiments" / f"{NAMES[0]}.yaml").write_text(good)
    found = load_configuration(folder)
    assert list(found.experiments) == [NAMES[0]]
    assert f"the refit '{NAMES[0]}' would have the name of another experiment" in found.broken["trial"].message
    (folder / "experiments" / f"{NAMES[0]}.yaml").unlink()
    path.write_text(path.read_text().replace("data: {", "data: {left_out: {fold: 1}, "))
    assert "key 'data.left_out': not together with k_fold" in load_configuration(folder).broken["trial"].message


OWN = '''
from pydantic import Field

from bayesmesh.analyses.base import Analysis
from bayesmesh.config.refit_settings import Folds


class Options(Folds):
    """Folds."""

    folds: int = Field(4, ge=2, description="Number of folds.")


class OwnFolds(Analysis):
    outputs = ("folds.csv",)
'''


def test_an_analysis_of_a_users_package_with_refits_is_imported_for_their_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("own_folds.py").write_text(OWN)
    path = folder / "experiments" / "trial.yaml"
    asked = path.read_text().replace("k_fold: {folds: 3, strata: y}", "analyses: {'own_folds:OwnFolds': {group: y}}")
    path.write_text(asked)
    found = load_configuration(folder)
    names = tuple(f"trial-fold-{fold}-of-4" for fold in (1, 2, 3, 4))
    assert found.experiments["trial"].named_experiments("own_folds:OwnFolds") == names
    path.write_text(asked.replace("group", "gruop"))
    message = load_configuration(folder).broken["trial"].message
    assert "trial.yaml: unknown key 'analyses.own_folds:OwnFolds.gruop'" in message
