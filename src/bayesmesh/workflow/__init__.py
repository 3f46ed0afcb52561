"""Plan a run and run its jobs: what the Snakefile asks, the stages, resources, the site and Slurm.

This file locates the workflow that ships with the package, and checks that a Snakefile uses it correctly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh import __version__
from bayesmesh.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]
_BUILT_IN = _PACKAGE / "repository"

REPOSITORY = _BUILT_IN if _BUILT_IN.is_dir() else _PACKAGE.parents[1]
"""Folder with ``workflow/``, ``profiles/`` and ``envs/``: part of the wheel, or the checkout."""

SNAKEFILE = str(REPOSITORY / "workflow" / "Snakefile")
"""The workflow, for ``include:`` or ``module`` in the Snakefile of another project."""

PROFILES = REPOSITORY / "profiles"
"""Profiles of Snakemake, and the description of a cluster, for another project to copy."""


def is_profile_given(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether Snakemake was called with a profile.

    >>> is_profile_given(["snakemake", "--profile=x"], {}), is_profile_given(["snakemake", "--workflow-profile", "x"], {})
    (True, False)
    """
    return "SNAKEMAKE_PROFILE" in environ or any(word.split("=")[0] == "--profile" for word in words)


def check_use(version: str, paths: Any) -> None:
    """Check that the workflow and the package fit each other.

    Args:
        version: version of the workflow, which a module may take from any commit of a repository.
        paths: Snakemake's modifier of paths.

    Raises:
        ConfigError: the package has another version, or a module moves the results.
    """
    if version != __version__:
        raise ConfigError(
            f"the workflow has version {version}, and the package bayesmesh beside Snakemake {__version__}",
            f"install bayesmesh {version}, or take the workflow from tag v{__version__}",
        )
    if (moved := str(paths.modify("results"))) != "results":
        raise ConfigError(
            f"results/ would become {moved}, but the stages write to results/ of the working directory",
            "remove `prefix:` or the storage provider; to keep results elsewhere, make results/ a symbolic link",
        )


def find_beside(path: Path | None, rules: Any) -> str | None:
    """Return a file of the package as a rule file names it; None for None.

    Args:
        path: file of the package, or of the user's.
        rules: folder of the rule file, as Snakemake knows it. In a repository, Snakemake takes every name to be relative to it.
    """
    if path is None:
        return None
    if "://" not in rules.get_path_or_uri(secret_free=True):
        return str(path)
    # A repository does not hold the files of the user.
    return f"../../src/bayesmesh/{path.relative_to(_PACKAGE)}" if path.is_relative_to(_PACKAGE) else None
