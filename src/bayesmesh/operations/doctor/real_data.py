"""doctor: check the mirror of real data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.data.mirror import MIRROR_VARIABLE
from bayesmesh.data.sources import _movielens_files, mnist, movielens
from bayesmesh.operations.doctor.finding import WARNS, Finding

__all__ = ["check"]

GROUP = "data"
FOLDERS = {"mnist": tuple(mnist.FILES), "ml-1m": _movielens_files.FILES}
"""Folder of the mirror -> files that `fetch` needs in it."""


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Check the mirror; without one, `fetch` downloads the data."""
    named = environ.get(MIRROR_VARIABLE)
    if not named:
        return [Finding(GROUP, "mirror", "none; real data are downloaded, built-in data need none")]
    mirror = Path(named)
    if not mirror.is_dir():
        return [
            Finding(
                GROUP, "mirror", f"{MIRROR_VARIABLE}={named}: no such folder", WARNS,
                "correct it, or unset it; on a cluster the folder must be visible to all nodes",
            )
        ]  # fmt: skip
    missing = {name: files for name in FOLDERS if (files := _missing(mirror, name)) is not None}
    lacking = [f"{name} lacks {', '.join(files)}" for name, files in missing.items() if files]
    if lacking or not missing:
        return [
            Finding(
                GROUP, "mirror", f"{named}: {'; '.join(lacking) or f'has none of {", ".join(FOLDERS)}'}", WARNS,
                "put the files of MNIST in its folder mnist and those of MovieLens in ml-1m (README.md)",
            )
        ]  # fmt: skip
    return [Finding(GROUP, "mirror", f"{named}: {', '.join(missing)}")]


def _missing(mirror: Path, name: str) -> list[str] | None:
    """Return the files missing in a folder of the mirror; None if there is no such folder."""
    archive = movielens.ARCHIVE
    if name == "ml-1m" and ((mirror / archive).is_file() or (mirror / name / archive).is_file()):
        return []
    return (
        [file for file in FOLDERS[name] if not (mirror / name / file).is_file()] if (mirror / name).is_dir() else None
    )
