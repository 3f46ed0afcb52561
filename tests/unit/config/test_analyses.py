"""An analysis of a user's package is asked for by `module:attribute`, and what is wrong with it is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bayesmesh.config.declarations import declared
from bayesmesh.config.loading import load_configuration, load_experiment
from bayesmesh.config.registry import forget_files

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
