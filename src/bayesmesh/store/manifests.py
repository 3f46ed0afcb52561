"""Manifests: what the sample stage says of a chain group once its draws are there."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired, TypedDict, cast

from bayesmesh.errors import StoreError
from bayesmesh.store.look_records import StopRecord
from bayesmesh.store.markers import DAMAGE_REMEDY, Commit
from bayesmesh.store.sealed import read_sealed
from bayesmesh.store.segments import ChainStore

__all__ = ["PROCESSES_REMEDY", "GroupManifest", "hold_to_manifest", "missing_draws", "read_manifest"]

PROCESSES_REMEDY = "restore the folders, or move those of all processes away to start afresh"
"""Where only some processes of a group have their draws."""

_WANTED = {"identity", "folder", "num_chains", "num_draws", "segment_draws", "environment", "changed_environment"}


class Environment(TypedDict):
    """The environment in which chains began; further keys describe the machine."""

    kind: str
    mesh: dict[str, int]
    packages: dict[str, str]


class GroupManifest(TypedDict):
    """The sampled draws of a chain group.

    Attributes:
        identity: of the chains.
        folder: of the group, below the experiment's.
        num_chains, num_processes: of the group.
        num_draws: draws per chain to use.
        committed_draws: draws per chain in the store.
        segment_draws: draws of a whole segment.
        environment: in which the chains began.
        changed_environment: differences from it in later runs.
        acceptance, divergences, step_size: of the draws.
        stop: the looks of a rule for stopping.
        statistics: unit and description of each statistic of the kernel.
    """

    identity: str
    folder: str
    num_chains: int
    num_draws: int
    segment_draws: int
    environment: Environment
    changed_environment: list[str]
    num_processes: NotRequired[int]
    committed_draws: NotRequired[int]
    acceptance: NotRequired[float]
    divergences: NotRequired[int]
    step_size: NotRequired[float]
    stop: NotRequired[StopRecord | None]
    statistics: NotRequired[dict[str, dict[str, str]]]


def read_manifest(path: Path) -> GroupManifest:
    """Return what `sample` said of a chain group.

    Raises:
        StoreError: it is missing or damaged.
    """
    remedy = "delete it and run the sample stage again"
    value = read_sealed(path, remedy)
    if not value.keys() >= _WANTED:
        raise StoreError(f"{path}: is damaged: not the manifest of a chain group", remedy)
    return cast(GroupManifest, value)


def missing_draws(path: Path, manifest: GroupManifest, folder: Path, last: Commit | None) -> str:
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
