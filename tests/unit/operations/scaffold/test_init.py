"""What `bayesmesh init` writes, and what it refuses; tests/workflow/test_project.py runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bayesmesh import __version__
from bayesmesh.cli import main
from bayesmesh.config.loading import load_all
from bayesmesh.errors import ConfigError
from bayesmesh.operations.scaffold.init import write_project
from bayesmesh.workflow import PROFILES


def test_a_project_names_its_own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my-study"]) == 0
    root = tmp_path / "my-study"
    monkeypatch.chdir(root)
    assert load_all(Path("config"))[1]["growth"].model.name == "my_study.models.growth:Growth"
    assert f"bayesmesh=={__version__}\n" in (root / "requirements.txt").read_text()
    assert len((root / "Snakefile").read_text().splitlines()) == 3
    texts = [path.read_text() for path in root.rglob("*") if path.is_file()]
    assert not [text for text in texts if "new_project" in text or "New project" in text]
    for path in filter(Path.is_file, PROFILES.rglob("*")):
        copy = root / "profiles" / path.relative_to(PROFILES)
        assert copy.read_bytes() == path.read_bytes()
        assert os.access(copy, os.X_OK) == (path.suffix == ".sh")


@pytest.mark.parametrize(
    "name",
    ["Study", "a b", "1st", "class", "a.b", "$(x)", "-x", "x" * 65, "numpy", "bayesmesh", "json", "data", "a\nb"],
)
def test_a_bad_name_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write_project(tmp_path / name)
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []
