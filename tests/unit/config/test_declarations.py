"""What an analysis declares is read from its source text, and a wrong declaration is named by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesmesh.cli import make_parser
from bayesmesh.config import registry
from bayesmesh.config.declarations import (
    EXPERIMENT_FOLDERS,
    OTHER_VERBS,
    STAGE_NAMES,
    TARGET_NAMES,
    declared,
    list_analyses,
    offer_words,
)  # fmt: skip
from bayesmesh.config.experiment import experiment_class
from bayesmesh.errors import ConfigError
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.workflow.flow import STAGES

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
    monkeypatch.setattr(registry, "_ROOT", tmp_path)
    folder = tmp_path / "analyses"
    folder.mkdir()
    offer_words.cache_clear()
    yield folder
    # They may have been made of these.
    experiment_class.cache_clear()
    offer_words.cache_clear()


def test_what_is_left_out_follows_from_the_name(analyses: Path) -> None:
    (analyses / "some_analysis.py").write_text(TEXT)
    (found,) = list_analyses()
    assert (found.verb, found.folder, found.pretty_name) == ("some_analysis", "some_analysis", "Some analysis")
    assert found.message == "Some analysis of {experiment}"
    assert found.reads == ("posterior", "data")
    assert found.files(Path("x"))["draws.zarr"] == Path("x/some_analysis/draws.zarr")
    assert found.section_file == found.path
    assert (found.templates, found.caption, offer_words()) == ([], None, [])


def test_a_folder_has_its_section_templates_and_caption_beside_the_class(analyses: Path) -> None:
    folder = analyses / "some"
    folder.mkdir()
    (folder / "analysis.py").write_text(TEXT)
    for name in ("section.py", "section.html", "caption.rst"):
        (folder / name).touch()
    found = declared("some")
    assert found.section_file == folder / "section.py"
    assert found.templates == [folder / "section.html"]
    assert found.caption == folder / "caption.rst"


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


def test_every_stage_verb_and_folder_is_reserved(tmp_path: Path) -> None:
    verbs = {each.verb for each in list_analyses()}
    assert set(STAGES) - verbs == STAGE_NAMES
    parser = next(action for action in make_parser()._actions if action.dest == "verb")
    assert set(parser.choices) <= STAGE_NAMES | TARGET_NAMES | OTHER_VERBS | verbs
    layout = ExperimentLayout(tmp_path, "some")
    inside = {path.relative_to(layout.folder).parts[0] for path in vars(layout).values() if isinstance(path, Path)
              and path.is_relative_to(layout.folder) and path != layout.folder}  # fmt: skip
    assert {name for name in inside if "." not in name} <= EXPERIMENT_FOLDERS
