"""Manifests: what the sample stage says of a chain group once its draws are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.errors import StoreError
from bayesmesh.store.markers import DAMAGE_REMEDY, Commit
from bayesmesh.store.sealed import read_sealed
from bayesmesh.store.segments import ChainStore

__all__ = ["PROCESSES_REMEDY", "hold_to_manifest", "missing_draws", "read_manifest"]

PROCESSES_REMEDY = "restore the folders, or move those of all processes away to start afresh"
"""Where only some processes of a group have their draws."""

_WANTED = {"identity", "folder", "num_chains", "num_draws", "segment_draws", "environment", "changed_environment"}


def read_manifest(path: Path) -> dict[str, Any]:
    """Return what `sample` said of a chain group.

    Raises:
        StoreError: it is missing or damaged.
    """
    remedy = "delete it and run the sample stage again"
    value = read_sealed(path, remedy)
    if not value.keys() >= _WANTED:
        raise StoreError(f"{path}: is damaged: not the manifest of a chain group", remedy)
    return value


def missing_draws(path: Path, manifest: Mapping[str, Any], folder: Path, last: Commit | None) -> str:
    """Return one line where the manifest at `path` knows of more draws than the markers in `folder`, else nothing."""
    promised = int(manifest.get("committed_draws", manifest["num_draws"]))
    there = last.stop if last is not None and last.phase == "sample" else 0
    if there >= promised:
        return ""
    return f"{folder / 'commits'}: names {there} draws, though {promised} were committed by {path}: markers were lost"


def hold_to_manifest(path: Path, store: ChainStore) -> None:
    """Hold a store that is to be continued to the manifest at `path`, where that is of the same identity.

    The manifest of chains that were moved away is removed: those that are sampled now are others.

    Raises:
        StoreError: the manifest is damaged, or knows of more draws than the markers.
    """
    if not path.exists():
        return
    manifest = read_manifest(path)
    if manifest["identity"] != store.record["identity"]:
        return
    if store.is_new:
        path.unlink(missing_ok=True)
        return
    commits = store.commits()
    if line := missing_draws(path, manifest, store.folder, commits[-1] if commits else None):
        raise StoreError(line, DAMAGE_REMEDY)
