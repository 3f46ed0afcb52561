"""The options of every component of the registry are described, and those of `options.py` are the component's own."""

from __future__ import annotations

import importlib

import pytest

from bayesmesh.config.registry import PACKAGES, component_path, list_components, load_component, options_class
from bayesmesh.operations.check.line import OK, check_options


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PACKAGES for name in list_components(kind)])
def test_its_options_are_described_and_its_own(kind: str, name: str) -> None:
    options = options_class(kind, name)
    described = check_options("options", options, component_path(kind, name))
    assert described.state == OK, described.text()
    assert importlib.import_module(load_component(kind, name).__module__).Options is options
