"""What an analysis declares is read from its source text, and a wrong declaration is named by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesmesh.cli import make_parser
from bayesmesh.config import config_registry
from bayesmesh.config.config_analyses import check_readable
from bayesmesh.config.declarations import (
    EXPERIMENT_FOLDERS,
    OTHER_VERBS,
    STAGE_NAMES,
    TARGET_NAMES,
    declared,
    list_analyses,
    offer_words,
    read_conditions,
    read_flag,
    read_trait,
)  # fmt: skip
from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import ConfigError
from bayesmesh.planning.plan_flow import STAGES
from bayesmesh.store.layout import ExperimentLayout

TEXT = """
import a_package_that_is_nowhere
raise SystemExit("the file was run")

class Options(Settings):
    \"\"\"Options.\"\"\"

class Mine(Analysis):
    outputs = ("table.csv", "draws.zarr")
"""


@pytest.fixture
def analyses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of analyses."""
    monkeypatch.setattr(config_registry, "_ROOT", tmp_path)
    folder = tmp_path / "analyses"
    folder.mkdir()
    yield folder
    # It may have been made of these.
    experiment_class.cache_clear()


def test_what_is_left_out_follows_from_the_name(analyses: Path) -> None:
    (analyses / "some_analysis.py").write_text(TEXT)
    (found,) = list_analyses()
    assert (found.verb, found.folder, found.pretty_name) == ("some_analysis", "some_analysis", "Some analysis")
    assert found.message == "Some analysis of {experiment}"
    assert found.reads == ("posterior", "data")
    assert found.files(Path("x"))["draws.zarr"] == Path("x/some_analysis/draws.zarr")
    assert found.section_file == found.path
    assert (found.templates, found.caption, found.names_others, offer_words()) == ([], None, False, [])


@pytest.mark.parametrize("broken", ["broken.py", "broken/analysis.py"])
@pytest.mark.parametrize("text", [TEXT + "\nclass Other(:\n", TEXT.replace('("table.csv", "draws.zarr")', "()")])
def test_an_analysis_that_cannot_be_read_concerns_those_alone_who_ask_for_it(
    analyses: Path, broken: str, text: str
) -> None:
    (analyses / "some_analysis.py").write_text(TEXT)
    (analyses / broken).parent.mkdir(exist_ok=True)
    (analyses / broken).write_text(text)
    assert [each.name for each in list_analyses()] == ["some_analysis"]
    check_readable(Path("a.yaml"), {"title": "A", "some_analysis": {}})
    with pytest.raises(ConfigError, match=rf"a.yaml: key 'broken': .*{broken}, line \d+: (invalid Python|outputs)"):
        check_readable(Path("a.yaml"), {"title": "A", "broken": {}})


def test_a_folder_has_its_section_templates_and_caption_beside_the_class(analyses: Path) -> None:
    folder = analyses / "some"
    folder.mkdir()
    settings, _, rest = TEXT.partition("class Mine")
    (folder / "analysis.py").write_text(f"class Mine{rest}")
    (folder / "settings.py").write_text(f"{settings}    experiments: tuple[str, ...] = ()\n")
    for name in ("section.py", "section.html", "caption.rst"):
        (folder / name).touch()
    found = declared("some")
    assert found.section_file == folder / "section.py"
    assert found.templates == [folder / "section.html"]
    assert found.caption == folder / "caption.rst"
    assert found.names_others


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('    verb = "Shout"\n', ", line 10: verb: String should match"),
        ('    verb = "a" + "b"\n', ", line 10: verb: Input should be a valid string"),
        ('    reads = ("draws",)\n', ", line 10: reads: Input should be 'posterior', 'data' or 'verdict'"),
        ('    outputs = ("../table.csv",)\n', ", line 10: outputs: String should match"),
        ('    outputs = ("draws.zarr",)\n', ", line 10: outputs: the first must be a file"),
        ("    outputs = ()\n", ", line 10: outputs: Tuple should have at least 1 item"),
        ("class Another(Analysis):\n    pass\n", "2 classes derive from Analysis"),
    ],
)
def test_a_wrong_declaration_is_named(analyses: Path, more: str, said: str) -> None:
    (analyses / "some.py").write_text(TEXT + more)
    with pytest.raises(ConfigError) as caught:
        declared("some")
    assert f"{analyses / 'some.py'}" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "more", "said", "remedy"),
    [
        *(
            (name, "", f"the name '{name}'", f"to my_{name}")
            for name in ("report", "index", "status", "sample", "logs")
        ),
        ("some", '    verb = "sample"\n', "the verb 'sample'", '`verb = "run_sample"`'),
        ("some", '    folder = "chains"\n', "the folder 'chains'", '`folder = "my_chains"`'),
    ],
)
def test_a_name_of_the_workflow_is_refused(analyses: Path, name: str, more: str, said: str, remedy: str) -> None:
    (analyses / f"{name}.py").write_text(TEXT + more)
    with pytest.raises(ConfigError, match=f"{said} belongs to a stage") as caught:
        list_analyses()
    assert str(analyses / f"{name}.py") in caught.value.message
    assert remedy in caught.value.remedy


def test_every_stage_verb_and_folder_is_reserved(tmp_path: Path) -> None:
    verbs = {each.verb for each in list_analyses()}
    assert set(STAGES) - verbs == STAGE_NAMES
    parser = next(action for action in make_parser()._actions if action.dest == "verb")
    assert set(parser.choices) <= STAGE_NAMES | TARGET_NAMES | OTHER_VERBS | verbs
    layout = ExperimentLayout(tmp_path, "some")
    inside = {path.relative_to(layout.folder).parts[0] for path in vars(layout).values() if isinstance(path, Path)
              and path.is_relative_to(layout.folder) and path != layout.folder}  # fmt: skip
    assert {name for name in inside if "." not in name} <= EXPERIMENT_FOLDERS


@pytest.mark.parametrize(("written", "number"), [("4", 4), ("True", None), ("2 + 2", None), ('"4"', None)])
def test_a_trait_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, number: int | None) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "some.py").write_text(f"class Some(Kernel):\n    min_chains = {written}\n")
    monkeypatch.setattr(config_registry, "_ROOT", tmp_path)
    assert read_trait("kernel", "some", "min_chains") == number
    assert read_flag("kernel", "some", "min_chains") == (written == "True")


@pytest.mark.parametrize("written", ['"averaging"', '{"averaging": 3}', "{[]: 1}", '{"averaging": {"task": x}}'])
def test_conditions_of_another_form_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "some.py").write_text(f"class Some(Model):\n    offers_only_with = {written}\n")
    monkeypatch.setattr(config_registry, "_ROOT", tmp_path)
    assert read_conditions("model", "some", ["averaging"]) == {}
