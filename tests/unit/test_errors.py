"""The one family of errors."""

from __future__ import annotations

import pytest

from bayesmesh import errors
from bayesmesh.errors import ConfigError, UserError, suggest


def test_every_error_of_the_family_has_its_own_exit_code() -> None:
    family = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    codes = {cls.__name__: cls.exit_code for cls in family}
    assert codes == {"UserError": 1, "ConfigError": 2, "DataError": 3, "DeviceError": 4, "StoreError": 5}
    assert all(issubclass(cls, UserError) for cls in family)


def test_the_remedy_follows_the_message() -> None:
    assert str(ConfigError("a.yaml: no", "do this")) == "a.yaml: no\n  remedy: do this"
    assert str(ConfigError("a.yaml: no")) == "a.yaml: no"


@pytest.mark.parametrize(
    ("name", "valid", "said"),
    [
        ("chese", ["hmc", "chees"], "did you mean 'chees'? valid: chees, hmc"),
        ("zzz", ["hmc", "chees"], "valid: chees, hmc"),
        ("x", [], "valid: "),
    ],
)
def test_suggestions(name: str, valid: list[str], said: str) -> None:
    assert suggest(name, valid) == said
