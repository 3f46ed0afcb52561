"""The family of user errors."""

from __future__ import annotations

import errno

import pytest

from bayesmesh import errors
from bayesmesh.errors import ConfigError, UserError, explain_os_error, suggest


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


@pytest.mark.parametrize(
    ("name", "valid", "said"),
    [
        ("chese", ["hmc", "chees"], "did you mean 'chees'? valid: chees, hmc"),
        ("zzz", ["hmc", "chees"], "valid: chees, hmc"),
        ("x", [], "there are none: leave it out"),
    ],
)
def test_suggestions(name: str, valid: list[str], said: str) -> None:
    assert suggest(name, valid) == said
