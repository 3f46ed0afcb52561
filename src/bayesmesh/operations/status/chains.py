"""status: the progress of chain groups, from their locks, the names and newest facts of their markers, and committed draws.

`ChainStore` is for writers and creates folders; this module only reads. A file may vanish between listing and reading.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayesmesh.errors import StoreError
from bayesmesh.store.chains.markers import Facts, read_about, read_markers
from bayesmesh.store.lock import LOCK_NAME, Owner, is_at_work, read_owner

if TYPE_CHECKING:
    import zarr

LOG_DENSITY = "sample_stats/lp"

MOST_DRAWS = 2000
"""Number of newest draws to read: one value per draw and chain, so reading takes milliseconds."""

FEWEST_DRAWS = 8
"""Smallest number of draws per chain for which R-hat is shown."""

NEWEST = 8
"""Number of newest markers to open; the names of the others suffice."""


@dataclasses.dataclass(frozen=True)
class GroupProgress:
    """Committed progress of a chain group.

    Attributes:
        folder: folder of the group.
        phase: ``warmup`` or ``sample``.
        done: iterations of that phase.
        per_second: iterations per second of the newest segments; None before the first commit.
        acceptance: mean over the newest commits of the phase; None before the first.
        last_commit: seconds since the epoch; None before the first.
        device: kind of device on which the group began.
        host: machine of the last commit.
        owner: holder of the lock; None without one.
        trouble: chains that are lost or stuck, in words; empty if all move.
        last_beat: time of the holder's last heartbeat, in seconds since the epoch.
    """

    folder: Path
    phase: str = "warmup"
    done: int = 0
    per_second: float | None = None
    acceptance: float | None = None
    last_commit: float | None = None
    device: str = "-"
    host: str = ""
    owner: Owner | None = None
    trouble: str = ""
    last_beat: float = 0.0

    def is_written(self, now: float) -> bool:
        """Return whether the holder of the lock is at work at `now`, in seconds since the epoch."""
        return self.owner is not None and is_at_work(self.owner, self.last_beat, now)


def current_groups(chains: Path, names: Sequence[str], written_at: Mapping[str, float]) -> list[Path]:
    """Return the groups of the current identity, which of several is the one written last.

    Args:
        chains: folder ``results/<experiment>/chains``.
        names: groups of the configuration; an earlier run may have had more.
        written_at: identity -> time of its newest manifest, which a run without new commits also writes.

    Raises:
        OSError: a folder is unreadable, or not a folder.
    """
    begun = {
        identity: [folder for name in names if ((folder := chains / identity / name) / "store.json").exists()]
        for identity in (os.listdir(chains) if chains.exists() else ())
    }

    def newest(identity: str) -> float:
        files = [folder / name for folder in begun[identity] for name in ("store.json", "commits", LOCK_NAME)]
        return max(written_at.get(identity, 0.0), *map(_modified, files))

    return begun[max(filter(begun.get, begun), key=newest)] if any(begun.values()) else []


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def read_group(folder: Path) -> GroupProgress:
    """Return the progress of a group.

    Raises:
        StoreError: a file is damaged.
        OSError: a file is unreadable.
    """
    device, last_beat = str(read_about(folder).get("environment", {}).get("kind", "-")), _modified(folder / LOCK_NAME)
    owner = read_owner(folder / LOCK_NAME) if last_beat else None
    group = GroupProgress(folder, device=device, owner=owner, last_beat=last_beat)
    commits = read_markers(folder, newest=NEWEST)
    if not commits:
        return group
    last = commits[-1]
    facts = [commit.facts for commit in commits if commit.phase == last.phase]
    # The median ignores a slow first segment.
    times = [f["seconds"] / f["count"] for f in facts if f.get("count") and f.get("seconds")]
    accepted = [f["acceptance"] for f in facts if "acceptance" in f]
    return dataclasses.replace(
        group, phase=last.phase, done=last.stop,
        per_second=1 / statistics.median(times) if times else None,
        acceptance=statistics.fmean(accepted) if accepted else None,
        last_commit=last.facts.get("committed_at"), host=last.facts.get("host", ""), trouble=_trouble(last.facts),
    )  # fmt: skip


def _trouble(facts: Facts) -> str:
    if "ended" in facts:
        return f"sampling has ended early: all chains are {facts['ended']['trouble']}; the job's log says what to try"
    chains_of = facts.get("troubled", {}).items()
    named = "; ".join(f"{trouble}: {', '.join(map(str, chains))}" for trouble, chains in chains_of)
    return f"chains in trouble: {named}" if named else ""


# -- the log density so far -----------------------------------------------------------------------------------------


_REMEDY = "check its permissions; `bayesmesh verify` lists all damage"


def log_density_so_far(groups: Sequence[GroupProgress]) -> tuple[float, float] | None:
    """Return R-hat and bulk effective sample size of the log density over all chains.

    NaN if undefined, None if too few draws are there. For many datasets, they are those of the worst.

    Reads only committed draws in place, which no writer touches again, not staged ones. Returns None for fewer than
    eight such draws per chain.

    Raises:
        StoreError: draws are damaged.
    """
    # Imported late, because the imports take most of a second.
    from bayesmesh.diagnostics.convergence import convergence_table
    from bayesmesh.store.arrays import read_part
    from bayesmesh.store.chains.arrays import DRAWS

    found = [(group, array) for group in groups if (array := _log_density(group.folder / DRAWS)) is not None]
    # A writer extends the array only after its draws are in place.
    done = min((n for group, array in found for n in (group.done, array.shape[1])), default=0)
    if len(found) < len(groups) or done < FEWEST_DRAWS:
        return None
    newest = slice(max(0, done - MOST_DRAWS), done)
    try:
        chains = [read_part(array, slice(None), newest) for _, array in found]
    except StoreError as error:
        raise StoreError(error.message, _REMEDY) from error
    draws = np.concatenate(chains)
    table = convergence_table(draws.reshape(*draws.shape[:2], -1))
    return float(table["r_hat"].max()), float(table["ess_bulk"].min())


def _log_density(draws: Path) -> zarr.Array | None:
    """Return the log density of the draws in place, (chain, draw); None before the first."""
    if not (draws / LOG_DENSITY / "zarr.json").exists():
        return None
    import zarr

    from bayesmesh.store.arrays import open_group

    array = open_group(draws).get(LOG_DENSITY)
    if not isinstance(array, zarr.Array):
        raise StoreError(f"{draws / LOG_DENSITY}: is damaged: not an array", _REMEDY)
    return array
