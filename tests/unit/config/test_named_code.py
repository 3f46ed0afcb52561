"""Classes and functions of a user's package are found by module and name, and find modules beside them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayesmesh.config.named_code import load_function, load_named
from bayesmesh.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "later_helper.py").write_text("HALF = 0.5\n")
    (tmp_path / "later_models.py").write_text(
        "scale = 2\n\n\ndef density(latents, rows, data_spec):\n    from later_helper import HALF\n\n    return HALF\n"
    )
    yield tmp_path
    for name in ("later_helper", "later_models", "ends"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("project")
def test_a_function_finds_a_module_of_the_project_when_it_is_called() -> None:
    assert load_function("later_models:density")({}, {}, None) == 0.5


def test_no_file_of_the_project_takes_the_place_of_an_installed_module(project: Path) -> None:
    (project / "tomllib.py").write_text("raise SystemExit\n")
    load_named("later_models:density")
    found = importlib.util.find_spec("tomllib")
    assert found is not None
    assert found.origin is not None
    assert not Path(found.origin).is_relative_to(project)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("name", "said", "remedy"),
    [
        ("later_models:densty", "later_models has no densty", "did you mean 'density'?"),
        ("later_models:scale", "'later_models:scale' is not a function but int", "name a function"),
    ],
)
def test_what_is_not_there_or_cannot_be_called_is_named(name: str, said: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        load_function(name)
    assert refused.value.remedy.startswith(remedy)
