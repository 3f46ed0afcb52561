"""doctor: where real data would come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.doctor.finding import WARNS, Finding

__all__ = ["check"]

GROUP = "data"
FOLDERS = ("mnist", "ml-1m")


def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
    """Look at the mirror; without one the data are downloaded where `fetch` runs."""
    named = environ.get("BAYESMESH_MIRROR")
    if not named:
        return [Finding(GROUP, "mirror", "none; real data are downloaded, built-in data need none")]
    mirror = Path(named)
    if not mirror.is_dir():
        return [
            Finding(
                GROUP, "mirror", f"BAYESMESH_MIRROR={named}: no such folder", WARNS,
                "correct it, or unset it; on a cluster the folder must be one that the nodes see",
            )
        ]  # fmt: skip
    there = [name for name in FOLDERS if (mirror / name).is_dir()]
    if not there:
        return [
            Finding(
                GROUP, "mirror", f"{named}: has none of {', '.join(FOLDERS)}", WARNS,
                "put the files of MNIST in its folder mnist, those of MovieLens in ml-1m (README.md)",
            )
        ]  # fmt: skip
    return [Finding(GROUP, "mirror", f"{named}: {', '.join(there)}")]
