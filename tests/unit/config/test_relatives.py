"""Whose chains an experiment continues follows from the configuration alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.config.loading import load_configuration
from bayesmesh.workflow.plan import Plan

GLM = """\
data: {source: table, files: rows.csv}
model: {name: glm, formula: y ~ x, priors: {coefficients: "normal(0, 1)"}}
"""
SWEPT = f"""{GLM}
sweep:
  cases:
    - {{name: one, model.priors: {{coefficients: "normal(0, 1)"}}}}
    - {{name: two, model.priors: {{coefficients: "normal(0, 2)"}}}}
    - {{name: other, model.formula: y ~ z}}
    - {{name: seed, sampling.seed: 2}}
    - {{name: cold, sampling.initial.relative: none, model.priors: {{coefficients: "normal(0, 3)"}}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "config.yaml").write_text("experiments: [trial]\n")
    return tmp_path


def _load(folder: Path, **files: str) -> dict[str, str]:
    for name, text in files.items():
        (folder / "experiments" / f"{name}.yaml").write_text(text)
    found = load_configuration(folder)
    return {name: each.relative for name, each in found.experiments.items()} | {
        name: error.message for name, error in found.broken.items()
    }


def test_folds_continue_the_whole_run_and_draw_until_their_gates_hold(folder: Path) -> None:
    gates = "gates: {ess_bulk: 50, ess_tail: 200, mcse_mean: 0.1}\n"
    found = _load(folder, trial=f"{GLM}{gates}k_fold: {{folds: 2}}\n")
    assert found == {"trial": "", "trial-fold-1-of-2": "trial", "trial-fold-2-of-2": "trial"}
    fold = load_configuration(folder).experiments["trial-fold-1-of-2"].sampling
    assert fold.stop is not None
    assert (fold.draws, fold.stop.min_ess_tail, fold.stop.max_r_hat) == (1000, 200.0, 1.01)
    assert fold.stop.min_ess_bulk == pytest.approx(100), (
        "the Monte Carlo error of a mean needs more than the gate itself"
    )
    plan = Plan(str(folder), str(folder / "results"))
    manifest = folder / "results" / "trial" / "chains" / "group-000.json"
    assert manifest in plan.job("sample", "trial-fold-1-of-2").inputs
    assert manifest not in plan.job("sample", "trial").inputs
    assert "trial" in plan._needed(["trial-fold-1-of-2"])


@pytest.mark.parametrize(
    "change",
    [
        "sampling: {initial: {relative: none}}",
        "sampling: {chains: 1}",
        "sampling: {warmup: 39}",
        "sampling: {initial: {method: laplace}}",
        "sampling: {mode: independent, chain_groups: 2}",
        "kernel: {name: hmc}",
    ],
)
def test_folds_that_cannot_continue_others_are_sampled_like_the_whole(folder: Path, change: str) -> None:
    _load(folder, trial=f"{GLM}k_fold: {{folds: 2}}\n{change}\n")
    found = load_configuration(folder).experiments
    assert {each.relative for each in found.values()} == {""}
    assert {each.sampling.stop for each in found.values()} == {None}


def test_members_continue_the_first_where_only_numbers_or_priors_of_the_model_differ(folder: Path) -> None:
    found = _load(folder, trial=SWEPT)
    assert found == {
        "trial-cold": "", "trial-one": "", "trial-other": "", "trial-seed": "", "trial-two": "trial-one",
    }  # fmt: skip


def test_a_named_relative_must_exist_fit_and_not_lead_back(folder: Path) -> None:
    def named(name: str, more: str = "") -> str:
        return f"{GLM}sampling: {{initial: {{relative: {name}}}{more}}}\n"

    assert _load(folder, trial=GLM, b=named("trial"))["b"] == "trial"
    assert "no experiment 'tria'" in _load(folder, b=named("tria"))["b"]
    assert "'trial' has another sampling.chains" in _load(folder, b=named("trial", ", chains: 8"))["b"]
    assert "a warmup of at least 40" in _load(folder, b=named("trial", ", warmup: 39"))["b"]
    assert "a cycle, b -> trial -> b" in _load(folder, trial=named("b"), b=named("trial"))["b"]
    assert "'b' is this experiment itself" in _load(folder, trial=GLM, b=named("b"))["b"]


@pytest.mark.parametrize("last", [None, "draws: many\n", SWEPT])
def test_an_experiment_is_refused_with_the_relative_of_its_relative(folder: Path, last: str | None) -> None:
    ways = {name: f"{GLM}sampling: {{initial: {{relative: {to}}}}}\n" for name, to in (("a", "b"), ("b", "c"))}
    found = _load(folder, trial=GLM, **ways, **({} if last is None else {"c": last}))
    why = "no experiment 'c'" if last is None else "'c' is a sweep" if last is SWEPT else "'c' is not valid: "
    assert found["trial"] == ""
    assert why in found["b"]
    assert found["a"].endswith(f"'b' is not valid: {found['b']}")


def test_a_sweep_is_no_relative_but_its_members_are(folder: Path) -> None:
    text = f"{GLM}sampling: {{initial: {{relative: %s}}}}\n"
    _load(folder, trial=SWEPT, b=text % "trial", c=text % "trial-two")
    found = load_configuration(folder)
    assert found.experiments["c"].relative == "trial-two"
    assert found.broken["b"].remedy.startswith("name one of trial-one, trial-two, ")


def test_folds_continue_the_whole_run_also_where_it_names_another(folder: Path) -> None:
    named = f"{GLM}sampling: {{initial: {{relative: before}}}}\nk_fold: {{folds: 2}}\n"
    found = _load(folder, before=GLM, trial=named)
    assert found == {"before": "", "trial": "before", "trial-fold-1-of-2": "trial", "trial-fold-2-of-2": "trial"}
