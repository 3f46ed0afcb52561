"""Find the versions of installed distributions by the names of their folders: reading each takes a millisecond."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from importlib import metadata

_FOLDER = re.compile(r"([^-]+)-([^-]+)\.dist-info")
"""``NAME-VERSION.dist-info``, in which neither has a hyphen (specification of recorded installed projects)."""


def find_versions(names: Iterable[str]) -> dict[str, str]:
    """Return name -> version of those that are installed, by the first folder of the search path that has them.

    >>> find_versions(["NumPy", "no-such-distribution"]) == {"NumPy": metadata.version("numpy")}
    True
    """
    folders: dict[str, str] = {}
    for entry in sys.path:
        try:
            found = [match.groups() for each in os.listdir(entry or ".") if (match := _FOLDER.fullmatch(each))]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # The interpreter takes these for empty, and archives have no folders.
            continue
        for name, version in found:
            folders.setdefault(_normal(name), version)
    versions = {}
    for name in names:
        if (known := folders.get(_normal(name))) is not None:
            versions[name] = known
            continue
        try:
            # In an archive, or installed in an older form.
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _normal(name: str) -> str:
    """Return a name as names are compared: in lower case, with `-` for each run of `-`, `_` and `.`."""
    return re.sub(r"[-_.]+", "-", name).lower()
