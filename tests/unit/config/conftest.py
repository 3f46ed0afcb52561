"""Configurations on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.config.loading import load_experiment
from bayesmesh.errors import ConfigError

GOOD = """\
title: A test
data: {source: gaussian}
model: {name: gaussian}
kernel: {name: hmc}
"""


@pytest.fixture
def good() -> str:
    """Return the shortest valid experiment."""
    return GOOD


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., ConfigError]:
    """Return a function that loads a text as an experiment and returns the error, which names the file."""

    def load(text: str | bytes, name: str = "test.yaml") -> ConfigError:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(ConfigError) as caught:
            load_experiment(path)
        assert caught.value.message.startswith(str(path))
        assert caught.value.exit_code == 2
        return caught.value

    return load
