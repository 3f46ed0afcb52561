"""The family of user errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bayesmesh import errors
from bayesmesh.errors import ConfigError, UserError, explain_os_error, suggest
from bayesmesh.store.lock import WriterLock


def test_every_error_of_the_family_has_its_own_exit_code() -> None:
    family = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    codes = {cls.__name__: cls.exit_code for cls in family}
    assert codes == {
        "UserError": 1,
        "ConfigError": 2,
        "DataError": 3,
        "DeviceError": 4,
        "StoreError": 5,
        "PeerError": 6,
        "SamplingError": 7,
        "InternalError": 70,
        "NotFinished": 75,
    }
    assert all(issubclass(cls, UserError) for cls in family)


def test_another_attempt_may_pass_where_nobody_has_to_change_anything() -> None:
    lost, full = errors.PeerError("lost"), explain_os_error(OSError(errno.ENOSPC, "full", "x"))
    assert full is not None
    assert [each.may_pass for each in (lost, full, errors.NotFinished("stopped"))] == [True] * 3
    assert not any(cls("wrong").may_pass for cls in (ConfigError, errors.StoreError, errors.SamplingError))


def test_the_remedy_follows_the_message() -> None:
    assert str(ConfigError("a.yaml: no", "do this")) == "a.yaml: no\n  remedy: do this"
    assert str(ConfigError("a.yaml: no")) == "a.yaml: no"


@pytest.mark.parametrize(
    ("name", "valid", "said"),
    [
        ("chese", ["hmc", "chees"], "did you mean 'chees'? valid: chees, hmc"),
        ("zzz", ["hmc", "chees"], "valid: chees, hmc"),
        ("x", [], "there are none"),
    ],
)
def test_suggestions(name: str, valid: list[str], said: str) -> None:
    assert suggest(name, valid) == said


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ESTALE, errno.EIO, errno.EISDIR, errno.ENOTDIR,
        errno.ELOOP,
    ],
)  # fmt: skip
def test_a_full_disk_and_its_like_are_explained(number: int) -> None:
    error = explain_os_error(OSError(number, os.strerror(number), "results/digits/chains/x"))
    assert error is not None
    assert str(error).startswith(f"results/digits/chains/x: {os.strerror(number)}\n  remedy: ")
    assert error.exit_code == 5


@pytest.mark.parametrize(
    ("names", "where"),
    [
        (("a/.b.json.123.json",), "a"),
        (("a/.b.json.123.json", None, "a/b.json"), "a/b.json"),
        ((b"a/b.json",), "a/b.json"),
        ((), "a file of the results"),
    ],
)
def test_no_temporary_file_is_named(names: tuple[str | bytes | None, ...], where: str) -> None:
    error = explain_os_error(OSError(errno.EACCES, os.strerror(errno.EACCES), *names))
    assert error is not None
    assert error.message == f"{where}: {os.strerror(errno.EACCES)}"


def test_a_chain_that_may_not_be_written_is_named_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(PermissionError) as caught, WriterLock(tmp_path):
        pass
    error = explain_os_error(caught.value)
    assert error is not None
    assert error.message == f"{tmp_path}: {os.strerror(errno.EACCES)}"


def test_other_os_errors_are_not_user_errors() -> None:
    assert explain_os_error(FileNotFoundError(errno.ENOENT, "no such file", "x")) is None
    assert explain_os_error(OSError("without a number")) is None
