"""Warn about what a kernel implies: draws without an accept step, and chains that descend from few draws of the prior."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int

from bayesmesh.diagnostics.gates.messages import missed_gate
from bayesmesh.diagnostics.verdict import GateResult


def accept_step_gate(is_adjusted: bool) -> GateResult | None:
    """Return a warning for a kernel without an accept step; None for one with it.

    >>> accept_step_gate(True), accept_step_gate(False).verdict
    (None, 'warn')
    """
    if is_adjusted:
        return None
    found = "the kernel has no accept step: the step size biases its draws, which no other gate detects"
    return missed_gate("accept_step", "warn", 0.0, 1.0, "", found, beyond_draws=True)


NUM_RELATIVES = "num_relatives"
"""Statistic of a kernel that resamples chains on their way from the prior: how many descend from the same prior
draw."""

FEWEST_ANCESTORS = 10.0
"""Effective number of ancestors below which a mode may have been lost. With ten, the share of chains in a mode with
half of the mass has a standard deviation of 0.16, and a mode with a quarter of it is lost in one run of eighteen."""


def effective_ancestors(num_relatives: Int[np.ndarray, " chain"]) -> float:
    """Return the effective number of draws of the prior from which chains descend, from 1 to the number of chains.

    It is the inverse of the sum of squared shares of chains that descend from each draw, for any number of chain
    groups.

    Args:
        num_relatives: for each chain, the number of chains that descend from the same draw, itself included.

    Reference:
        Lee and Whiteley 2018, doi:10.1093/biomet/asy028: the relative variance of a particle estimate grows with that
        sum.

    >>> effective_ancestors(np.array([3, 3, 3, 1]))
    1.6
    """
    return num_relatives.size**2 / float(num_relatives.sum(dtype=np.int64))


def ancestors_gate(num_relatives: Int[np.ndarray, " chain"]) -> GateResult | None:
    """Return a warning if chains descend from effectively fewer than `FEWEST_ANCESTORS` draws of the prior; otherwise None."""
    value, num_chains = effective_ancestors(num_relatives), num_relatives.size
    if value >= FEWEST_ANCESTORS:
        return None
    # Rounded down, so that a value below the limit does not read as the limit.
    told = f"{num_chains} chains effectively descend from {math.floor(10 * value) / 10:.1f} draws of the prior, fewer than {FEWEST_ANCESTORS:.0f}"
    lost = "a mode from which no chain descends is missing from these draws, and the shares of modes are rough"
    return missed_gate("ancestors", "warn", value, FEWEST_ANCESTORS, "", f"{told}: {lost}")
