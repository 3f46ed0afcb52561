"""What kills must not change: the values that a flow has stored, without times and the names of machines."""

from __future__ import annotations

from pathlib import Path

from workspace import hashes

TIMED = {"commits", "ledger", "logs", "seals"}
"""Folders of files that say when something was done, or how long it took; markers of commits are compared by ``commits.py``."""

TIMED_FILES = ("audit.json", "index.html", "ledger.csv", "report.html")


def values_of(results: Path, owner: str = "") -> dict[str, str]:
    """Return file -> sha256; empty for a file with times, which must only be there.

    Args:
        results: folder of all results.
        owner: an experiment, whose files and data alone are meant.
    """
    found = {}
    for name, digest in hashes(results).items():
        path = Path(name)
        # Hidden files are temporary, or those of Snakemake and of the compile cache.
        if "logs" in path.parts or any(part.startswith(".") for part in path.parts):
            continue
        if not name.startswith((owner, f"data/{owner}")):
            continue
        is_timed = set(path.parts) & TIMED or path.name in TIMED_FILES
        found[name] = "" if is_timed else digest
    return found


def differing(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return the files whose values differ, or that one side lacks."""
    return sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
