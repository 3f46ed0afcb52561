"""Manifests of chain groups, written when sampling has ended, and the looks of a stopping rule in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pydantic

from bayesmesh.errors import StoreError
from bayesmesh.files import JSON
from bayesmesh.store.chains.markers import Commit
from bayesmesh.store.records.checked import read_checked

PROCESSES_REMEDY = "restore the folders, or move those of all processes away to sample the group again"
"""Remedy if only some processes of a group have their draws."""

_REMEDY = "delete it and run the sample stage again, which keeps the draws and rewrites it"


class TargetEntry(TypedDict):
    """One target of a look: its key, its limit, the worst value (None where not finite), its place, and the outcome."""

    name: str
    target: float
    value: float | None
    where: str
    is_met: bool


class Look(TypedDict):
    """One look: draws per chain, seconds it took, monitored summaries (by the name in existing files), and its targets."""

    draws: int
    seconds: float
    is_met: bool
    judged: list[str]
    targets: list[TargetEntry]


class StopRecord(TypedDict):
    """The looks of a stopping rule at a chain group, in its manifest and in ``looks.json``.

    Attributes:
        rule: targets and draw counts of looks, with the limit of draws.
        decided_by: scope of the rule.
        reason: ``met``, ``draws`` or ``seconds``; empty during sampling.
        num_draws: draws per chain; the limit during sampling.
        look_seconds, sampling_seconds: wall time of looks and of sampling.
    """

    rule: dict[str, JSON]
    decided_by: str
    looks: list[Look]
    num_draws: int
    reason: str
    look_seconds: float
    sampling_seconds: float


class GroupManifest(pydantic.BaseModel):
    """The sampled draws of a chain group. Earlier versions did not record the fields that have defaults.

    Attributes:
        identity: identity of the chains.
        folder: folder of the group, relative to the experiment's.
        num_chains, num_processes: chains and processes of the group.
        num_draws: draws per chain to use.
        committed_draws: draws per chain in the store.
        segment_draws: draws of a whole segment.
        environment: environment in which the chains began.
        changed_environment: differences from it in later runs.
        acceptance, divergences, step_size: statistics over all draws, if the kernel records them.
        stop: looks of the stopping rule; None without one.
        statistics: unit and description of each statistic of the kernel.
        kernel: name of the kernel.
        is_adjusted: whether the kernel has an accept step.
        is_population: whether the reported chains of a group are one population, see `Kernel.are_population`.
    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True)

    identity: str
    folder: str
    num_chains: int
    num_draws: int
    segment_draws: int
    environment: dict[str, Any]
    changed_environment: list[str]
    num_processes: int = 1
    committed_draws: int | None = None
    acceptance: float | None = None
    divergences: int | None = None
    step_size: float | None = None
    stop: dict[str, Any] | None = None
    statistics: dict[str, dict[str, str]] = {}
    kernel: str = ""
    is_adjusted: bool = True
    is_population: bool = False


def read_manifest(path: Path) -> GroupManifest:
    """Read the manifest of a chain group.

    Raises:
        StoreError: it is missing or damaged.
    """
    try:
        return GroupManifest.model_validate(read_checked(path, _REMEDY))
    except pydantic.ValidationError as error:
        raise StoreError(f"{path}: is damaged: not the manifest of a chain group", _REMEDY) from error


def missing_draws(path: Path, manifest: GroupManifest, folder: Path, last: Commit | None) -> str:
    """Return one line if the manifest at `path` records more draws than the markers in `folder`, else an empty text."""
    promised = manifest.num_draws if manifest.committed_draws is None else manifest.committed_draws
    there = last.num_draws if last is not None else 0
    if there >= promised:
        return ""
    return f"{folder / 'commits'}: names {there} draws, though {promised} were committed by {path}: markers were lost"
