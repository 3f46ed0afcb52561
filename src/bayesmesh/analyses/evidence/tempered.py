"""Combine, over chain groups, the evidence that chains estimate on their way from the prior."""

from __future__ import annotations

import math

import numpy as np
import zarr
from jaxtyping import Float
from scipy.special import logsumexp

from bayesmesh.analyses.figures.evidence_table import Estimate
from bayesmesh.store.arrays import read_part
from bayesmesh.store.posterior.reader import Posterior

STATISTIC = "log_evidence"
"""Statistic of a kernel that estimates the evidence."""

MIN_GROUPS = 4
"""Fewest chain groups from whose spread the error is estimated."""


def tempered_evidence(posterior: Posterior) -> Estimate | None:
    """Return the estimate of kernels that make one, None for others."""
    found = posterior.find(f"sample_stats/{STATISTIC}")
    if not isinstance(found, zarr.Array):
        return None
    # One number for all chains of a group, constant after warmup. A shard holds all chains of one group.
    last = read_part(found, slice(None), slice(found.shape[1] - 1, None))
    of_group = found.shards[0] if found.shards is not None else found.shape[0]
    return combine_groups(np.asarray(last[::of_group, 0], np.float64), posterior.num_chains)


def combine_groups(log_evidence: Float[np.ndarray, " group"], num_chains: int) -> Estimate:
    """Return the log of the mean evidence over independent groups of chains, with its standard error.

    >>> found = combine_groups(np.log([1.0, 2.0, 3.0, 2.0]), 64)
    >>> round(found.log_evidence, 4), round(found.error, 4)
    (0.6931, 0.2041)
    """
    num = len(log_evidence)
    log_mean = float(logsumexp(log_evidence)) - math.log(num)
    if not math.isfinite(log_mean):
        return Estimate("tempered", math.nan, math.nan, problem="the estimate of a chain group is not finite")
    if num < MIN_GROUPS:
        groups = "chain group is" if num == 1 else "chain groups are"
        problem = f"{num} {groups} too few to tell the error: set sampling.chain_groups to {MIN_GROUPS} or more"
        return Estimate("tempered", log_mean, math.nan, num_parts=num, num_draws=num_chains, problem=problem)
    error = float(np.exp(log_evidence - log_mean).std(ddof=1)) / math.sqrt(num)
    return Estimate("tempered", log_mean, error, error_between=error, num_parts=num, num_draws=num_chains)
