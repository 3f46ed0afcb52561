"""An exception of a user's code is a sentence with file and line; those of others propagate."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bayesmesh.config.user_code import explaining
from bayesmesh.errors import ConfigError, DeviceError, InternalError, StoreError

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


def test_the_innermost_line_of_the_user_is_named_not_that_of_a_library(own: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught, explaining():
        own["outer"](own["parse"])
    assert str(caught.value).startswith(f"{own['file']}, line 8: parse: JSONDecodeError: Expecting property name")
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


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


def test_an_exception_of_a_host_callback_is_named_with_its_line(own: dict[str, Any]) -> None:
    def call(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda _: own["Mine"]().method(), jax.ShapeDtypeStruct((), "float32"), x)

    program = jax.jit(call).lower(jnp.ones(())).compile()
    with (
        pytest.raises(ConfigError, match=r"own\.py, line 12: method: the host callback raises KeyError: 'a'"),
        explaining([own["file"]]),
    ):
        program(jnp.ones(())).block_until_ready()


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


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (StoreError("as it is"), StoreError, "^as it is$"),
        (MemoryError("9 TiB"), DeviceError, r"line \d+: _raise: this machine or job has not enough memory: 9 TiB"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
        (OSError(errno.ENOSPC, "No space left", "data.bin"), StoreError, "data.bin: No space left"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes"), DeviceError, "not enough memory: RESOURCE_EXHAUSTED"),
    ],
)  # fmt: skip
def test_circumstances_are_not_the_users_code(
    own: dict[str, Any], error: BaseException, kind: type[BaseException], said: str
) -> None:
    with pytest.raises(kind, match=said), explaining():
        own["outer"](lambda: _raise(error))
