"""What is checked beyond single keys: users' analyses, named experiments, and features that do not go together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bayesmesh.config.checks import check_experiment, check_named
from bayesmesh.config.declarations import declared
from bayesmesh.config.loading import load_configuration, load_experiment
from bayesmesh.config.registry import forget_files
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.jobs import make_job

CODE = """
from bayesmesh.analyses.base import Analysis, Subject
from bayesmesh.config.settings import Settings
from pydantic import Field
import a_package_that_is_nowhere

class Options(Settings):
    '''Tails.'''

    level: float = Field(0.9, gt=0, lt=1, description="Level.")
    experiments: tuple[str, ...] = Field((), description="Others.")

class TailIndex(Analysis):
    outputs = ("tails.csv",)
    reads = ("posterior",)
    options: Options

def function(subject):
    return 1
"""
EXPERIMENT = {"title": "A", "data": {"source": "gaussian"}, "model": {"name": "gaussian"}, "kernel": {"name": "hmc"}}
NAME = "my_study.tails:TailIndex"

REPLICATED: dict[str, Any] = {
    "title": "Many", "data": {"source": "table", "files": ["sites.csv"], "replicates": "site"},
    "model": {"name": "gaussian"}, "kernel": {"name": "hmc"},
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one module, and the current one."""
    (tmp_path / "my_study").mkdir()
    (tmp_path / "my_study" / "tails.py").write_text(CODE)
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [one]\n")
    monkeypatch.chdir(tmp_path)
    forget_files()
    return tmp_path


def write(analyses: object, name: str = "one", **more: object) -> Path:
    path = Path("config", "experiments", f"{name}.yaml")
    path.write_text(yaml.safe_dump({**EXPERIMENT, "analyses": analyses, **more}, sort_keys=False))
    return path


def test_it_is_one_of_the_analyses_and_its_code_is_not_run(project: Path) -> None:
    experiment = load_experiment(write({NAME: {"level": 0.5}}, loo={}))
    assert list(experiment.requested_analyses()) == ["loo", NAME]
    assert experiment.requested_analyses()[NAME] == {"level": 0.5}
    found = declared(NAME)
    assert (found.verb, found.folder, found.pretty_name) == ("tail_index", "tail_index", "Tail index")
    assert (found.stage, found.command, found.key) == (NAME, "analyse", f"analyses.{NAME}")
    assert found.files(Path("x")) == {"tails.csv": Path("x/tail_index/tails.csv")}


@pytest.mark.parametrize(
    ("analyses", "said", "remedy"),
    [
        ({"my_study.nowhere:Tails": {}}, "key 'analyses.my_study.nowhere:Tails': unknown analysis", "install your package"),
        ({"my_study.tails:TailIndx": {}}, "has no class TailIndx", "did you mean 'TailIndex'?"),
        ({"my_study.tails:function": {}}, "has no class function", "valid: Options, TailIndex"),
        ({"my_study.tails:Options": {}}, "class Options: outputs: Field required", "docs/contracts/analysis.md"),
        ({"my_study.tails:Subject": {}}, "has no class Subject", "valid: Options, TailIndex"),
        ({NAME: None}, f"key 'analyses.{NAME}': should be a mapping, such as {{}}, found None", "correct"),
        ([NAME], "key 'analyses': should be a mapping, such as {}", "my_study.tails:Tails"),
        ({"averaging": {}}, "key 'analyses': 'averaging' is an analysis of bayesmesh", "averaging: {}"),
        ({"tails": {}}, "key 'analyses': 'tails' is not `module:attribute`", "my_study.tails:Tails: {}"),
        ({"../x:Y": {}}, "'../x:Y' is not `module:attribute`", "my_study.tails:Tails: {}"),
        ({NAME: {"experiments": ["one"]}}, f"key 'analyses.{NAME}.experiments': the request is circular", "own experiment"),
        ({NAME: {"experiments": ["other"]}}, f"key 'analyses.{NAME}.experiments': no experiment 'other'", ""),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_with_file_key_and_remedy(
    project: Path, analyses: object, said: str, remedy: str
) -> None:
    write(analyses)
    error = load_configuration(Path("config")).broken["one"]
    assert error.message.startswith("config/experiments/one.yaml: ")
    assert "\n" not in error.message
    assert said in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("more", "said", "remedy"),
    [
        ('    verb = "report"\n', "the verb 'report' belongs to a stage", 'verb = "run_report"'),
        (
            '    verb = "average"\n',
            "the verb 'average' belongs to the analysis 'averaging' of bayesmesh",
            "run_average",
        ),
        (
            '    folder = "recommendations"\n',
            "the folder 'recommendations' belongs to the analysis 'recommendation'",
            "my_",
        ),
        ('    folder = "chains"\n', "the folder 'chains' belongs to a stage", "my_chains"),
        ('    verb = "one"\n', "its verb 'one' is the name of an experiment", "tails_one"),
        ('    folder = "a" + "b"\n', ", line 17: folder: Input should be a valid string", "write it out"),
        ("    def (\n", ", line 17: invalid Python", "correct the line"),
    ],
)
def test_a_name_that_is_taken_is_refused(project: Path, more: str, said: str, remedy: str) -> None:
    path = project / "my_study" / "tails.py"
    path.write_text(CODE.replace("    options: Options\n", f"    options: Options\n{more}"))
    write({NAME: {}})
    error = load_configuration(Path("config")).broken["one"]
    assert error.message.startswith(f"config/experiments/one.yaml: key 'analyses.{NAME}': ")
    assert said in error.message
    assert remedy in error.remedy


def experiments(**named: list[str]) -> dict[str, Any]:
    """Experiments whose analysis `comparison` names others; one that names none does not ask for it."""
    return {
        name: SimpleNamespace(
            requested_analyses=lambda others=others: {"comparison": None} if others else {},
            named_experiments=lambda analysis, others=others: tuple(others),
        )
        for name, others in named.items()
    }


def check(**named: list[str]) -> None:
    for name in named:
        check_named(Path(f"{name}.yaml"), name, experiments(**named), {})


@pytest.mark.parametrize(
    ("named", "said", "remedy"),
    [
        ({"a": ["bb"], "b": []}, r"a\.yaml: key 'comparison\.experiments': no experiment 'bb'", "did you mean 'b'"),
        ({"a": ["b", "b"], "b": []}, "'b' is named twice", "once"),
        ({"a": ["a"]}, "the request is circular: a -> a", "name only others"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "the request is circular: a -> b -> c -> a", "name only others"),
    ],
)
def test_what_cannot_be_is_refused_with_file_and_key(named: dict[str, list[str]], said: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check(**named)
    assert remedy in caught.value.remedy


def test_a_circle_is_told_to_those_who_are_in_it() -> None:
    with pytest.raises(ConfigError, match=r"^b\.yaml: .*circular: b -> c -> b"):
        check(a=["b"], b=["c"], c=["b"])


def test_what_names_an_invalid_experiment_is_not_valid_either() -> None:
    broken = {"b": ConfigError("b.yaml: unknown key 'x'", "valid: y")}
    with pytest.raises(
        ConfigError, match=r"a\.yaml: key 'comparison\.experiments': 'b' is not valid: b\.yaml: unknown"
    ):
        check_named(Path("a.yaml"), "a", experiments(a=["b"]), broken)


@pytest.fixture
def folder(tmp_path: Path, good: str) -> Path:
    """A configuration with a good experiment, one with a wrong key, and one of the wrong name."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "config.yaml").write_text("experiments: [one]\n")
    (tmp_path / "experiments" / "one.yaml").write_text(good)
    (tmp_path / "experiments" / "two.yaml").write_text(good + "smapling: {}\n")
    (tmp_path / "experiments" / "three.yml").write_text(good)
    return tmp_path


def test_an_invalid_file_leaves_the_others_as_they_are(folder: Path) -> None:
    found = load_configuration(folder)
    assert list(found.experiments) == ["one"]
    assert {name: error.message for name, error in found.broken.items()} == {
        "two": f"{folder}/experiments/two.yaml: unknown key 'smapling'",
        "three": f"{folder}/experiments/three.yml: an experiment is a file NAME.yaml; this one would be ignored",
    }


def with_(block: str, values: Any) -> dict[str, Any]:
    return {**REPLICATED, block: {**REPLICATED.get(block, {}), **values}}


@pytest.mark.parametrize(
    ("block", "values", "key"),
    [
        ("sampling", {"stop": {"min_ess_bulk": 100}}, "sampling.stop"),
        ("sampling", {"initial": {"method": "model"}}, "sampling.initial.method"),
        ("compute", {"processes": 2}, "compute.processes"),
        ("compute", {"mesh": {"data": 2}}, "compute.mesh.data"),
        ("compute", {"sharding": "shard_map"}, "compute.sharding"),
        ("compute", {"row_tile": 8}, "compute.row_tile"),
        ("data", {"held_out_fraction": 0.2}, "data.replicates"),
        ("averaging", {}, "averaging"),
    ],
)
def test_what_needs_one_dataset_is_refused(block: str, values: Any, key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_experiment(Path("many.yaml"), with_(block, values))
    assert "many.yaml" in raised.value.message
    assert f"key '{key}'" in raised.value.message
    assert raised.value.remedy


def test_the_same_shards_serve_with_and_without_it() -> None:
    many = check_experiment(Path("many.yaml"), REPLICATED)
    one = check_experiment(Path("one.yaml"), with_("data", {"replicates": None}))
    for stage in ("fetch", "shard"):
        assert make_job(stage, "many", many, "results").digest == make_job(stage, "one", one, "results").digest
    assert make_job("sample", "many", many, "results").digest != make_job("sample", "one", one, "results").digest


def test_rows_are_dropped_for_every_column_that_a_regression_reads() -> None:
    """Such as those of censoring and of parameters, and not for others."""
    model = {
        "name": "glm", "formula": "y ~ x", "censored": "status", "interval_end": "end", "known_error": "se", "rounded": "unit",
        "truncated": {"lower": "low", "upper": 9}, "parameters": {"sigma": "~ z", "nu": {"formula": "~ (1 | g)"}},
    }  # fmt: skip
    content = {"title": "A test", "data": {"source": "table", "files": "rows.csv", "missing": "drop"}, "model": model}
    named = check_experiment(Path("trial.yaml"), content).data.needed  # type: ignore[attr-defined]
    assert {"y", "x", "status", "end", "se", "unit", "low", "z", "g"} <= set(named)
    assert not {"sigma", "nu", "formula", "lower"} & set(named)


def test_gaps_of_an_outcome_are_not_filled_in() -> None:
    data = {"source": "table", "files": "rows.csv", "indicate_missing": ["x", "y"]}
    content = {"title": "A test", "data": data, "model": {"name": "glm", "formula": "log(y) ~ x"}}
    with pytest.raises(ConfigError, match=r"data.indicate_missing.*y is the outcome") as raised:
        check_experiment(Path("trial.yaml"), content)
    assert "missing: drop" in str(raised.value)
    data["indicate_missing"] = ["x"]
    assert check_experiment(Path("trial.yaml"), content).model.name == "glm"
