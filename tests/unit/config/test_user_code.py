"""An exception of a user's code is a sentence with file and line; those of others propagate."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.user_code import explaining
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
