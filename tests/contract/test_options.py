"""The options of every component of the registry are described: the table of keys and the schema show it."""

from __future__ import annotations

import pytest

from bayesmesh.config.config_registry import PACKAGES, component_path, list_components, read_options
from bayesmesh.operations.check.check_line import OK, check_options


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PACKAGES for name in list_components(kind)])
def test_its_options_are_described(kind: str, name: str) -> None:
    path = component_path(kind, name)
    described = check_options("options", read_options(path), path)
    assert described.state == OK, described.text()
