"""status: R-hat and effective sample size of the log density, from the draws that are committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.errors import StoreError
from bayesmesh.operations.status.chain_progress import FEWEST_DRAWS, GroupProgress
from bayesmesh.store.arrays import open_group, read_part
from bayesmesh.store.draw_arrays import DRAWS

__all__ = ["log_density_so_far"]

LOG_DENSITY = "sample_stats/lp"

_REMEDY = "see who may read it; `bayesmesh verify` names all that is damaged"

MOST_DRAWS = 2000
"""Newest draws that are looked at; one value per draw and chain, so that it stays a matter of milliseconds."""


def log_density_so_far(groups: Sequence[GroupProgress]) -> tuple[float, float] | None:
    """Return R-hat and bulk effective sample size of the log density over all chains; NaN where they have none.

    Only committed draws are read, which no writer touches again. Those that a writer is still putting in their place,
    or had no time to, are left out; None when fewer than eight draws of each chain are left.

    Raises:
        StoreError: draws are damaged.
    """
    found = [(group, array) for group in groups if (array := _log_density(group.folder / DRAWS)) is not None]
    # An array gets its length after its draws are in their place.
    done = min((n for group, array in found for n in (group.done, array.shape[1])), default=0)
    if len(found) < len(groups) or done < FEWEST_DRAWS:
        return None
    newest = slice(max(0, done - MOST_DRAWS), done)
    try:
        chains = [read_part(array, slice(None), newest) for _, array in found]
    except StoreError as error:
        raise StoreError(error.message, _REMEDY) from error
    table = convergence_table(np.concatenate(chains)[:, :, None])
    return float(table["r_hat"][0]), float(table["ess_bulk"][0])


def _log_density(draws: Path) -> zarr.Array | None:
    """The log density of every draw that is in its place, (chain, draw); None before the first is."""
    if not (draws / LOG_DENSITY / "zarr.json").exists():
        return None
    array = open_group(draws).get(LOG_DENSITY)
    if not isinstance(array, zarr.Array):
        raise StoreError(f"{draws / LOG_DENSITY}: is damaged: no array", _REMEDY)
    return array
