"""Each stage is told exactly what it reads."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.experiment import ExperimentBase, experiment_class
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.flow import DOES_NOT_TRIGGER, LATER, STAGES, components, reads
from bayesmesh.workflow.jobs import (
    Job,
    component_sources,
    dataset_name,
    make_job,
    parse_spec,
    split_name,
    stage_config,
)

EXPERIMENT: dict[str, Any] = {
    "title": "A test",
    "data": {"source": "films", "held_out_fraction": 0.2},
    "model": {"name": "matrix_factorization"},
    "kernel": {"name": "hmc"},
    "averaging": {},
    "divergent_draws": {},
    "effects": {},
    "evidence": {},
    "k_fold": {"folds": 2},
    "loo": {},
    "neighbours": {},
    "predictive_checks": {},
    "rating_scores": {},
    "sensitivity": {},
    "recommendation": {"users": [1, 2]},
}


def _load(value: dict[str, Any] | None = None) -> ExperimentBase:
    return experiment_class().model_validate(EXPERIMENT if value is None else value)


def test_there_is_a_module_for_every_stage() -> None:
    import bayesmesh

    folder = Path(bayesmesh.__file__).parent / "workflow" / "stages"
    assert set(STAGES) - set(LATER) <= {path.stem for path in folder.glob("*.py")}
    assert all(set(components(stage)) <= {"source", "model", "kernel"} for stage in STAGES)


@pytest.mark.parametrize(
    ("stage", "ends"),
    [
        ("shard", {"sources/films.py"}),
        ("compile", {"sources/films.py", "models/matrix_factorization.py", "kernels/hmc.py", "metrics/identity.py"}),
        ("report", {"kernels/hmc.py", "averaging/section.py", "recommendation/analysis.py"}),
        ("diagnose", set()),
    ],
)
def test_exceptions_are_explained_in_the_files_of_the_components(stage: str, ends: set[str]) -> None:
    files = {"/".join(file.parts[-2:]) for file in component_sources(make_job(stage, "x", _load(), "results"))}
    assert ends <= files
    assert bool(ends) == bool(files)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_told_the_keys_it_reads_and_no_others(stage: str) -> None:
    config = stage_config(stage, _load())
    assert set(config) == set(reads(stage)) - ({"analyses"} if stage == "report" else set())
    assert json.loads(json.dumps(config)) == config, "plain JSON values"


CHANGES: list[tuple[str, Any, set[str]]] = [
    ("title", "Other", {"report"}),
    ("report.caption", "Other", {"report"}),
    ("gates.r_hat", 1.05, {"diagnose", "report"}),
    ("averaging.calibration_bins", 7, {"average", "report"}),
    ("recommendation.top", 3, {"recommend", "report"}),
    ("posterior.probe_rows", 3, {"assemble", "report"}),
    ("predictive_checks.draws", 99, {"predictive_checks", "report"}),
    # Its draws are groups of the posterior.
    ("predictive_checks.prior", True, {"assemble", "predictive_checks", "report"}),
    ("sampling.draws", 9, {"sample", "assemble", "report"}),
    # More draws, and when they are enough, compile nothing again.
    ("sampling.stop", {"min_ess_bulk": 9.0}, {"sample", "report"}),
    ("sampling.seed", 9, {"sample", "report"}),
    ("sampling.on_changed_environment", "accept", {"sample", "report"}),
    ("sampling.warmup", 9, {"compile", "sample", "report"}),
    ("kernel.target_acceptance", 0.9, {"compile", "sample", "report"}),
    ("compute.mesh", {"data": 2}, {"compile", "sample", "report"}),
    (
        "compute.dtype",
        "float64",
        {
            "compile",
            "sample",
            "assemble",
            "average",
            "divergent_draws",
            "effects",
            "evidence",
            "k_fold",
            "loo",
            "neighbours",
            "predictive_checks",
            "rating_scores",
            "recommend",
            "report",
            "sensitivity",
        },
    ),
    (
        "model.prior_scale",
        2.0,
        {
            "compile",
            "sample",
            "assemble",
            "average",
            "effects",
            "evidence",
            "k_fold",
            "loo",
            "neighbours",
            "predictive_checks",
            "rating_scores",
            "recommend",
            "report",
            "sensitivity",
        },
    ),
    ("data.split_seed", 2, set(STAGES) - {"fetch", "diagnose", "divergent_draws"}),
    ("data.num_films", 9, set(STAGES) - {"diagnose", "divergent_draws"}),
]


@pytest.mark.parametrize(("key", "value", "stages"), CHANGES, ids=[key for key, *_ in CHANGES])
def test_a_changed_key_changes_the_specs_of_the_stages_that_read_it(key: str, value: Any, stages: set[str]) -> None:
    changed = copy.deepcopy(EXPERIMENT)
    *path, last = key.split(".")
    block = changed
    for part in path:
        block = block.setdefault(part, {})
    block[last] = value
    before, after = _load(), _load(changed)
    differ = {
        s for s in STAGES if make_job(s, "x", before, "r").canonical() != make_job(s, "x", after, "r").canonical()
    }
    assert differ == stages


def test_the_page_is_told_of_the_analyses_that_are_asked_for_and_of_no_others() -> None:
    asked = set(stage_config("report", _load()))
    assert asked - set(stage_config("report", _load({**EXPERIMENT, "averaging": None}))) == {"averaging"}
    assert asked == set(reads("report")) - {"analyses"}
    told = make_job("report", "x", _load({**EXPERIMENT, "averaging": None}), "r")
    assert parse_spec(told.canonical(), "report") == told
    with pytest.raises(ConfigError, match=r"key 'config\.gates' is missing"):
        parse_spec(told.canonical().replace('"gates"', '"recommendation"'), "report")


def test_what_a_rule_for_stopping_judges_are_the_summaries_of_the_posterior() -> None:
    stopped = {**EXPERIMENT, "sampling": {"stop": {"min_ess_bulk": 9.0}}, "posterior": {"probe_rows": 7}}
    spec = make_job("sample", "x", _load(stopped), "r")
    assert spec.settings("posterior").probe_rows == 7
    assert set(spec.config) == {*reads("sample"), "posterior"}
    assert make_job("sample", "x", _load({**stopped, "sampling": {}}), "r") == make_job("sample", "x", _load(), "r")


def test_a_default_that_is_written_out_changes_nothing() -> None:
    written = {**EXPERIMENT, "sampling": {"chains": 4}, "gates": {"r_hat": {"limit": 1.01, "severity": "fail"}}}
    for stage in STAGES:
        assert make_job(stage, "x", _load(), "r") == make_job(stage, "x", _load(written), "r")


def test_a_spec_gives_back_validated_settings() -> None:
    spec = parse_spec(make_job("recommend", "x", _load(), "r").canonical(), "recommend")
    assert spec.settings("recommendation").users == (1, 2)
    assert spec.settings("compute").mesh == "auto"
    assert spec.settings("data").held_out_fraction == 0.2
    assert make_job("sample", "x", _load(), "r").num_chains == 4


def test_settings_are_resolved_once_and_typed() -> None:
    spec = parse_spec(make_job("sample", "x", _load(), "r").canonical(), "sample")
    assert spec.sampling is spec.sampling
    assert (spec.data.source, spec.model.name, spec.kernel.name) == ("films", "matrix_factorization", "hmc")
    kernel_class, options = component_of(spec, "kernel")
    assert kernel_class.__name__ == "Hmc"
    assert "name" not in type(options).model_fields
    assert spec == make_job("sample", "x", _load(), "r")


def test_the_canonical_form_is_one_line_with_sorted_keys() -> None:
    text = make_job("report", "x", _load(), "r").canonical()
    assert "\n" not in text
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


def test_a_spec_is_read_from_a_file_too(tmp_path: Path) -> None:
    spec = make_job("diagnose", "x", _load(), "r")
    path = tmp_path / "spec.json"
    path.write_text(spec.canonical() + "\n")
    assert parse_spec(str(path), "diagnose") == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gone.json", "--spec gone.json: cannot be read: No such file"),
        ("{}", "the given JSON: not a stage specification"),
        ("{", "the given JSON: not a stage specification"),
        ('{"stage": "report", "experiment": "../x", "config": {}}', "not a stage specification"),
        ('{"stage": "report", "experiment": "x", "config": {}, "more": 1}', "not a stage specification"),
        ('{"stage": "sample", "experiment": "x", "config": {}}', "is a specification of 'sample', not of 'report'"),
    ],
)
def test_what_is_no_spec_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_spec(text, "report")
    assert said in str(caught.value)


def test_a_spec_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a stage specification"):
        parse_spec(str(path), "report")


def test_names_of_data_are_stable() -> None:
    """Folders of earlier results keep their names."""
    whole = _load().model_dump(mode="json")["data"]
    assert dataset_name(whole) == dataset_name(dict(reversed(whole.items())))
    assert dataset_name(whole) == dataset_name({**whole, "held_out_fraction": 0.5, "split_seed": 3})
    assert dataset_name(whole) != dataset_name({**whole, "num_films": 3})
    assert dataset_name({"source": "mnist", "held_out_fraction": 0.0, "split_seed": 0}) == "mnist-44136fa3"
    assert split_name({"held_out_fraction": 0.0, "split_seed": 5}) == "all"
    assert split_name({"held_out_fraction": 0.2, "split_seed": 0}) == "held-out-829b05c6"
    assert split_name(whole) != split_name({**whole, "split_seed": 1})


def test_a_spec_forbids_unknown_keys() -> None:
    assert Job.model_config["extra"] == "forbid"


def test_a_spec_written_by_hand_is_checked_where_it_is_read() -> None:
    spec = Job(stage="diagnose", experiment="x", config={"gates": {"rhat": 1}})
    with pytest.raises(ConfigError, match=r"key 'config\.gates\.rhat'"):
        spec.settings("gates")
    with pytest.raises(ConfigError, match=r"key 'config\.compute' is missing"):
        spec.settings("compute")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "key 'config.gates' is missing"),
        ({"gates": {"rhat": 1}}, "key 'config.gates.rhat'"),
        ({"gates": {}, "gate": {}}, "unknown key 'config.gate'"),
    ],
)
def test_a_spec_written_by_hand_is_refused_before_its_job_begins(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_spec(json.dumps({"stage": "diagnose", "experiment": "x", "config": config}), "diagnose")
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"name": "gausian"}, "key 'config.model.name': unknown model 'gausian'"),
        ({"nme": "gaussian"}, "key 'config.model.name' is missing; 'nme' should read 'name'"),
        ("gaussian", "key 'config.model': should be a mapping that names a model, found 'gaussian'"),
    ],
)
def test_a_spec_names_the_component_that_is_wrong(block: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Job(stage="sample", experiment="x", config={"model": block}).settings("model")
    assert f"specification of 'sample': {said}" in caught.value.message
    assert "for example\n    model:\n      name: " in caught.value.remedy


CHANGES = {
    "segment_seconds": 1.0, "grace_seconds": 1.0, "on_changed_environment": "accept", "warmup": 7, "draws": 50, "seed": 3,
    "initial": {"spread": 0.5}, "stop": {"min_ess_bulk": 9.0},
}  # fmt: skip
TRIGGERED = {
    "segment_seconds": set(), "grace_seconds": set(), "on_changed_environment": set(), "warmup": {"sample"},
    "draws": {"sample", "assemble"}, "seed": {"sample"}, "initial": {"compile", "sample"}, "stop": {"sample"},
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGES)
def test_settings_that_change_no_result_of_a_stage_do_not_trigger_it(key: str) -> None:
    before, after = (_load({**EXPERIMENT, "sampling": s}) for s in ({}, {key: CHANGES[key]}))
    # The page shows all settings.
    stages = set(STAGES) - {"report"}
    specs = {stage: [make_job(stage, "a", each, "results") for each in (before, after)] for stage in stages}
    assert {stage for stage, (old, new) in specs.items() if old.digest != new.digest} == TRIGGERED[key]


def test_further_groups_of_chains_do_not_sample_the_others_again() -> None:
    def spec(stage: str, chains: int, groups: int) -> Job:
        sampling = {"mode": "independent", "chains": chains, "chain_groups": groups}
        return make_job(stage, "a", _load({**EXPERIMENT, "sampling": sampling}), "results")

    for stage in ("compile", "sample"):
        assert spec(stage, 4, 2).digest == spec(stage, 8, 4).digest
        assert spec(stage, 4, 2).digest != spec(stage, 8, 2).digest
    assert spec("assemble", 4, 2).digest != spec("assemble", 8, 4).digest


def test_what_does_not_trigger_a_stage_is_read_by_it() -> None:
    for stage, keys in DOES_NOT_TRIGGER.items():
        config = make_job(stage, "a", _load(), "results").config
        for key in keys:
            block, name = key.split(".")
            assert name in config[block]
