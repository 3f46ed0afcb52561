"""Find chains that are in another mode, or lost, by their log density, and miss a gate of their own because of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bayesmesh.diagnostics.finite import MOST_CHAINS
from bayesmesh.diagnostics.verdict import GateResult

SEPARATION = 5.0
"""Distance of a chain's mean log density from the median chain's, in standard deviations within chains, beyond which
they have hardly a value in common; correlated draws explain one or two."""

FEWEST_NATS = 3.0
"""Distance that chains are allowed where the density hardly varies within them."""


def separated_chains(lp: Float[np.ndarray, "chain draw"]) -> dict[int, float]:
    """Return chain -> its mean log density less the median chain's, in nats, for chains apart from the others.

    Args:
        lp: log density of every draw, nats; a chain with a value that is not finite is left out.

    >>> separated_chains(np.array([[-1.0, -2.0, -1.5], [-1.25, -1.75, -1.5], [-43.0, -42.0, -41.0]]))
    {2: -40.5}
    """
    usable = np.flatnonzero(np.isfinite(lp).all(axis=1))
    if not usable.size:
        return {}
    kept = lp[usable].astype(np.float64)
    apart = kept.mean(axis=1) - np.median(kept.mean(axis=1))
    is_separated = np.abs(apart) > max(SEPARATION * np.median(kept.std(axis=1)), FEWEST_NATS)
    return {int(usable[i]): float(apart[i]) for i in np.flatnonzero(is_separated)}


def modes_gate(lp: Float[np.ndarray, "chain draw"]) -> GateResult | None:
    """Return a failed gate that names the chains; None if all have the same log densities."""
    found = separated_chains(lp)
    if not found:
        return None
    groups = [
        (side, [c for c, nats in found.items() if (nats < 0) == (side == "lower")]) for side in ("lower", "higher")
    ]
    said = [
        f"{_name(chains)} {'has' if len(chains) == 1 else 'have'} a log density"
        f" {np.median([abs(found[c]) for c in chains]):.4g} nats {side} than the others"
        for side, chains in groups
        if chains
    ]
    worst = max(found, key=lambda chain: abs(found[chain]))
    return GateResult(
        name="modes", limit=0.0, direction="at most", value=float(len(found)), where=f"chain {worst}",
        severity="fail", verdict="fail", message=f"a second mode, or lost chains: {'; '.join(said)}",
    )  # fmt: skip


def _name(chains: Sequence[int]) -> str:
    named = [str(chain) for chain in chains[:MOST_CHAINS]]
    if len(chains) > MOST_CHAINS:
        named.append(f"{len(chains) - MOST_CHAINS} more")
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"chain{'s' if len(chains) > 1 else ''} {listed}"
