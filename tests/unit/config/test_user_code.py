"""Users' code is loaded by its name, and what it raises is explained."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.user_code import explaining, load_function, load_named
from bayesmesh.errors import ConfigError, InternalError

OWN = """
import json

def outer(function):
    return function()

def parse():
    return json.loads("{")

class Mine:
    def method(self):
        return {}["a"]
"""


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Any]:
    """Return the names of a module of a user."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    names: dict[str, Any] = {"__name__": "own", "file": path}
    exec(compile(OWN, str(path), "exec"), names)
    return names


def _raise(error: BaseException) -> None:
    raise error


def test_an_exception_that_passes_no_line_of_a_user_is_internal_where_there_is_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also one below a method of an installed package: the user cannot correct its lines."""
    said = r"^internal error: JSONDecodeError: Expecting .*\n.* in run\.log$"
    with pytest.raises(InternalError, match=said), explaining(log="run.log"), explaining(method=json.loads):
        json.loads("{")
    assert "Traceback" in caplog.text
    assert "json/decoder.py" in caplog.text


def test_an_interruption_is_the_codes_own_where_signals_do_not_raise_it() -> None:
    def interrupt() -> None:
        with explaining():
            _raise(KeyboardInterrupt())

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with pytest.raises(ConfigError, match="_raise: KeyboardInterrupt"):
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_change_of_the_working_folder_is_refused_and_undone(
    own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later errors would blame files that are in their place."""
    monkeypatch.chdir(own["file"].parent)
    said = r"own\.py, line 11: Mine\.method: changes the working folder, to /\n"
    with pytest.raises(ConfigError, match=said), explaining(method=own["Mine"].method):
        os.chdir("/")
    assert Path.cwd() == own["file"].parent


class Unusual(BaseException):
    """An exception that `except Exception` does not see."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(0), r"ends the process: exit\(0\)"),
        (StopIteration(3), "StopIteration: 3"),
        (AssertionError(), "AssertionError: "),
        (Unusual("odd"), "Unusual: odd"),
        (RecursionError("too deep"), "RecursionError: too deep"),
    ],
)
def test_any_exception_of_the_user_is_named_with_its_line(
    own: dict[str, Any], error: BaseException, message: str
) -> None:
    with (
        pytest.raises(ConfigError, match=rf"test_user_code\.py, line \d+: _raise: {message}"),
        explaining(log="run.log"),
    ):
        own["outer"](lambda: _raise(error))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"latents": ["aa", "b"], "fields": []}, "asks for 'a'; there are latents aa, b; fields none\n  remedy: did you mean 'aa'?"),
        ({"latents": ["a"]}, "KeyError: 'a'"),
        ({}, "KeyError: 'a'"),
    ],
)  # fmt: skip
def test_a_missing_name_gets_the_nearest_one(own: dict[str, Any], names: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ConfigError) as caught, explaining(names=names):
        own["Mine"]().method()
    assert f"line 12: Mine.method: {said}" in str(caught.value)


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
