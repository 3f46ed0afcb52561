"""Find the versions of installed distributions by the names of their folders, because reading their metadata takes a millisecond each."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from importlib import metadata

_FOLDER = re.compile(r"([^-]+)(?:-([^-]+)(?:-.+)?)?\.(?:dist|egg)-info")
"""``NAME-VERSION.dist-info``, in which neither has a hyphen (specification of recorded installed projects), or an older form."""


def find_versions(names: Iterable[str]) -> dict[str, str]:
    """Return name -> version of distributions, from the first folder of the search path that has each.

    Args:
        names: of the distributions.

    Raises:
        PackageNotFoundError: one is not installed.

    >>> find_versions(["NumPy"]) == {"NumPy": metadata.version("numpy")}
    True
    """
    folders: dict[str, str | None] = {}
    for entry in sys.path:
        try:
            found = [match.groups() for each in os.listdir(entry or ".") if (match := _FOLDER.fullmatch(each))]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # The interpreter treats these as empty, and archives have no folders.
            continue
        for name, version in found:
            folders.setdefault(_normal(name), version)
    versions = {}
    for name in names:
        if known := folders.get(_normal(name)):
            versions[name] = known
            continue
        # The distribution is in an archive, or in a folder whose name lacks the version.
        versions[name] = metadata.version(name)
    return versions


def _normal(name: str) -> str:
    """Return the normalised name: in lower case, with `-` for each run of `-`, `_` and `.`."""
    return re.sub(r"[-_.]+", "-", name).lower()
