"""Refuse a folder of results in which nothing can be written, before Snakemake plans jobs that write into it."""

from __future__ import annotations

import os
from pathlib import Path

from bayesmesh.errors import StoreError


def refuse_results(folder: Path) -> None:
    """Refuse a path that is not a folder, or a folder that cannot be written.

    Args:
        folder: of the results; it need not exist.

    Raises:
        StoreError: names the folder and the remedy.
    """
    if folder.is_symlink() and not folder.exists():
        raise StoreError(f"{folder}: a link to {os.readlink(folder)}, which does not exist", "make that folder, or remove the link")  # fmt: skip
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder}: a file, but results are written into a folder of this name", "move it away")
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        remedy = "check its permissions and how its file system is mounted, or make it a link to a folder that can be written"
        raise StoreError(f"{folder}: cannot be written", remedy)
