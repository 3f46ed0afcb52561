"""Which versions are installed, for tables of benchmarks."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["version_line"]

_PACKAGES = ("bayesmesh", "jax", "jaxlib", "tfp-nightly", "numpy")


def version_line() -> str:
    """Return the versions of what is measured, such as ``bayesmesh 0.2, jax 0.12.0``; left out what is not there."""
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join([f"python {platform.python_version()}", *found])
