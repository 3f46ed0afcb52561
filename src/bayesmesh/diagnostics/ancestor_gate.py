"""Find chains that descend from few draws of the prior, and miss a gate of their own because of them."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int

from bayesmesh.diagnostics.gate_messages import WORDINGS
from bayesmesh.diagnostics.verdict import GateResult

NUM_RELATIVES = "num_relatives"
"""Statistic of a kernel that resamples chains on their way from the prior: how many descend from the same draw of it."""

FEWEST = 10.0
"""Effective number of ancestors below which a mode may have been lost. With ten, the share of chains in a mode of half of
the mass has a standard deviation of 0.16, and a mode of a quarter is lost once in eighteen times."""


def effective_ancestors(num_relatives: Int[np.ndarray, " chain"]) -> float:
    """Return the effective number of draws of the prior from which chains descend, from 1 to the number of chains.

    It is 1 over the sum of squares of the shares of chains that descend from each draw, whatever the number of chain groups.

    Args:
        num_relatives: chains that descend from the same draw as a chain, itself included.

    Reference:
        Lee and Whiteley 2018, doi:10.1093/biomet/asy028: the relative variance of an estimate by particles grows with that sum.

    >>> effective_ancestors(np.array([3, 3, 3, 1]))
    1.6
    """
    return num_relatives.size**2 / float(num_relatives.sum(dtype=np.int64))


def ancestors_gate(num_relatives: Int[np.ndarray, " chain"]) -> GateResult | None:
    """Return a warning where chains descend from fewer than `FEWEST` draws of the prior in effect, else None."""
    value, num_chains = effective_ancestors(num_relatives), num_relatives.size
    if value >= FEWEST:
        return None
    # Cut off: what is below the limit is not to read as the limit.
    told = f"{num_chains} chains descend from {math.floor(10 * value) / 10:.1f} draws of the prior in effect, fewer than {FEWEST:.0f}"
    lost = "a mode from which no chain descends is in none of these draws, and the shares of modes are rough"
    return GateResult(
        name="ancestors", limit=FEWEST, direction="at least", value=value, where="", severity="warn", verdict="warn",
        found=f"{told}: {lost}", hint=WORDINGS["ancestors"].hint,
    )  # fmt: skip
