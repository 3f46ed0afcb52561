"""status: R-hat and effective sample size of the log density over the committed draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.errors import StoreError
from bayesmesh.operations.status.chain_progress import FEWEST_DRAWS, GroupProgress
from bayesmesh.store.arrays import open_group, read_part
from bayesmesh.store.chains.arrays import DRAWS

LOG_DENSITY = "sample_stats/lp"

_REMEDY = "check its permissions; `bayesmesh verify` lists all damage"

MOST_DRAWS = 2000
"""Number of newest draws to read: one value per draw and chain, so reading takes milliseconds."""


def log_density_so_far(groups: Sequence[GroupProgress]) -> tuple[float, float] | None:
    """Return R-hat and bulk effective sample size of the log density over all chains.

    NaN if undefined, None if too few draws are there. For many datasets, they are those of the worst.

    Reads only committed draws in place, which no writer touches again, not staged ones. Returns None for fewer than
    eight such draws per chain.

    Raises:
        StoreError: draws are damaged.
    """
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
    array = open_group(draws).get(LOG_DENSITY)
    if not isinstance(array, zarr.Array):
        raise StoreError(f"{draws / LOG_DENSITY}: is damaged: not an array", _REMEDY)
    return array
