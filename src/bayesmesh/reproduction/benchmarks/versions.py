"""Report the versions of imported packages, for tables of benchmarks; imports only the standard library."""

from __future__ import annotations

import platform
from collections.abc import Container
from importlib.metadata import PackageNotFoundError, version

__all__ = ["version_line"]

_PACKAGES = {
    "bayesmesh": "bayesmesh",
    "jax": "jax",
    "jaxlib": "jaxlib",
    "tensorflow_probability": "tfp-nightly",
    "numpy": "numpy",
    "pymc": "pymc",
    "pytensor": "pytensor",
    "numba": "numba",
    "numpyro": "numpyro",
    "nutpie": "nutpie",
    "blackjax": "blackjax",
}
"""Module -> distribution."""


def version_line(modules: Container[str] = _PACKAGES) -> str:
    """Return the versions of what is measured, such as ``python 3.12.1, bayesmesh 0.2, jax 0.12.0``.

    Args:
        modules: imported modules, all by default; packages not among them or not installed are left out.
    """
    found = []
    for module, name in _PACKAGES.items():
        if module not in modules:
            continue
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join([f"python {platform.python_version()}", *found])
