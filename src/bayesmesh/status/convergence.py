"""status: R-hat and effective sample size of the log density, from the draws that are committed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.status.progress import GroupProgress
from bayesmesh.store.arrays import open_group

__all__ = ["log_density_so_far"]

MOST_DRAWS = 2000
"""Newest draws that are looked at; one value per draw and chain, so that it stays a matter of milliseconds."""


def log_density_so_far(groups: Sequence[GroupProgress]) -> tuple[float, float]:
    """Return R-hat and bulk effective sample size of the log density over all chains; NaN where they have none.

    Only committed draws are read, which no writer touches again.
    """
    done = min(group.done for group in groups)
    first = max(0, done - MOST_DRAWS)
    chains = [np.asarray(open_group(g.folder / "draws.zarr")["sample_stats/lp"][:, first:done]) for g in groups]
    table = convergence_table(np.concatenate(chains)[:, :, None])
    return float(table["r_hat"][0]), float(table["ess_bulk"][0])
