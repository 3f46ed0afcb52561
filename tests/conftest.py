"""Fixtures of all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Return the folder with the real data files; in CI it must be there."""
    value = os.environ.get("BAYESMESH_MIRROR", "")
    if not value:
        reason = "BAYESMESH_MIRROR is not set: no real data"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(value)
