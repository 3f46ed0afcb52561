"""Detect chains in another mode, lost or late, by their log density, and report them by a gate of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from bayesmesh.diagnostics.gates.finite import MOST_CHAINS
from bayesmesh.diagnostics.gates.messages import WORDINGS
from bayesmesh.diagnostics.verdict import GateResult

SEPARATION = 5.0
"""Distance of a chain's mean log density from the median chain's, in standard deviations within chains, beyond which
the two hardly share a value; autocorrelation explains one or two."""

FEWEST_NATS = 3.0
"""Distance in nats that chains are always allowed, even if the log density hardly varies within them."""


NUM_PARTS = 10
"""Number of parts into which draws are cut to find late chains."""

FEWEST_DRAWS = 20
"""Fewest draws per part for its mean to say where the chain was."""


def separated_chains(lp: Float[np.ndarray, "chain draw"]) -> dict[int, float]:
    """Return chain -> its mean log density minus the median chain's, in nats, for chains apart from the others.

    Args:
        lp: log density of every draw, nats; a chain with a value that is not finite is left out.

    >>> separated_chains(np.array([[-1.0, -2.0, -1.5], [-1.25, -1.75, -1.5], [-43.0, -42.0, -41.0]]))
    {2: -40.5}
    """
    usable, kept, limit = _usable(lp)
    if not usable.size:
        return {}
    apart = kept.mean(axis=1) - np.median(kept.mean(axis=1))
    return {int(usable[i]): float(apart[i]) for i in np.flatnonzero(np.abs(apart) > limit)}


def late_chains(lp: Float[np.ndarray, "chain draw"]) -> dict[int, tuple[int, float]]:
    """Return late chain -> how many of its first draws, in whole parts, are apart from the others, and how far in nats.

    A chain that is apart throughout is one of `separated_chains`; chains with fewer than `NUM_PARTS * FEWEST_DRAWS`
    draws are not examined.
    """
    usable, kept, _ = _usable(lp)
    length = lp.shape[1] // NUM_PARTS
    if not usable.size or length < FEWEST_DRAWS:
        return {}
    cut = kept[:, : NUM_PARTS * length].reshape(len(kept), NUM_PARTS, length)
    # Spread within parts, because a chain that leaves a mode has two levels; level of the end, where all may have arrived.
    parts, limit = cut.mean(axis=2), max(SEPARATION * float(np.median(cut.std(axis=2))), FEWEST_NATS)
    apart = parts - np.median(parts[:, -1])
    num_first = np.cumprod(np.abs(apart) > limit, axis=1).sum(axis=1)
    chosen = np.flatnonzero((num_first > 0) & (num_first < NUM_PARTS))
    return {int(usable[i]): (int(num_first[i]) * length, float(apart[i, : num_first[i]].mean())) for i in chosen}


def _usable(lp: Float[np.ndarray, "chain draw"]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the chains whose values are finite, their values, and the distance in nats beyond which they are apart."""
    usable = np.flatnonzero(np.isfinite(lp).all(axis=1))
    kept = lp[usable].astype(np.float64)
    return (
        usable,
        kept,
        max(SEPARATION * float(np.median(kept.std(axis=1))), FEWEST_NATS) if usable.size else FEWEST_NATS,
    )


def modes_gate(lp: Float[np.ndarray, "chain draw"]) -> GateResult | None:
    """Return a failed gate that names the chains; None if the log densities of all chains agree throughout."""
    found, late = _find(lp)
    if not (found or late):
        return None
    messages = [_describe_separated(found)] if found else []
    messages += [_describe_late(late)] if late else []
    apart = found | {chain: nats for chain, (_, nats) in late.items()}
    return _failed(apart, ". ".join(messages), is_second=bool(found))


def chains_apart(lp: Float[np.ndarray, "chain draw"]) -> list[int]:
    """Return the chains that `modes_gate` names, those farthest from the others first."""
    found, late = _find(lp)
    nats = found | {chain: distance for chain, (_, distance) in late.items()}
    return sorted(nats, key=lambda chain: -abs(nats[chain]))


def _find(lp: Float[np.ndarray, "chain draw"]) -> tuple[dict[int, float], dict[int, tuple[int, float]]]:
    """Return the chains that are apart from the others, and those that were apart only at first."""
    late = late_chains(lp)
    arrived = max((num_draws for num_draws, _ in late.values()), default=0)
    # A late chain is not in another mode, although its first draws alone may pull its mean far from the others.
    still = separated_chains(lp[:, arrived:])
    found = {chain: nats for chain, nats in separated_chains(lp).items() if chain in still}
    # A chain may leave another mode before the last late chain arrives: compare all draws of the chains that were on time.
    on_time = [chain for chain in range(len(lp)) if chain not in late]
    found |= {on_time[at]: nats for at, nats in separated_chains(lp[on_time]).items()}
    return found, {chain: each for chain, each in late.items() if chain not in found}


def _failed(found: Mapping[int, float], message: str, *, is_second: bool) -> GateResult:
    worst = max(found, key=lambda chain: abs(found[chain]))
    return failed_by_modes(len(found), f"chain {worst}", message, is_second=is_second)


def failed_by_modes(num_chains: int, where: str, message: str, *, is_second: bool) -> GateResult:
    """Return the failed gate `modes`.

    Args:
        num_chains: how many are in another mode or came late.
        where: a place where this shows.
        message: the finding, for both cases; for chains that came late, also the remedy.
        is_second: whether any chain stays in another mode, so that more draws do not bring chains together.
    """
    return GateResult(
        name="modes", limit=0.0, direction="at most", value=float(num_chains), where=where, severity="fail", verdict="fail",
        found=message, hint=WORDINGS["modes"].hint if is_second else "", beyond_draws=is_second,
    )  # fmt: skip


def _describe_separated(found: Mapping[int, float]) -> str:
    groups = [
        (side, [c for c, nats in found.items() if (nats < 0) == (side == "lower")]) for side in ("lower", "higher")
    ]
    said = [
        f"{name_chains(chains)} {'has' if len(chains) == 1 else 'have'} a log density"
        f" {np.median([abs(found[c]) for c in chains]):.4g} nats {side} than the others"
        for side, chains in groups
        if chains
    ]
    return f"a second mode, or lost chains: {'; '.join(said)}"


def _describe_late(late: Mapping[int, tuple[int, float]]) -> str:
    num_draws, nats = (np.array(values) for values in zip(*late.values(), strict=True))
    side = "lower" if np.median(nats) < 0 else "higher"
    far = f"a log density {np.median(np.abs(nats)):.4g} nats {side} than the others"
    return describe_late(list(late), far, int(num_draws.max()))


def describe_late(chains: Sequence[int], far: str, num_draws: int) -> str:
    """Describe the chains that came late, what set them apart until then, and the remedy."""
    ran = f"until draw {num_draws:,}; run a longer warmup (sampling.warmup)"
    return f"chains that arrived late, from a second mode or a distant start: {name_chains(chains)} had {far} {ran}"


def name_chains(chains: Sequence[int]) -> str:
    """Name some chains, the first few by number."""
    named = [str(chain) for chain in chains[:MOST_CHAINS]]
    if len(chains) > MOST_CHAINS:
        named.append(f"{len(chains) - MOST_CHAINS} more")
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"chain{'s' if len(chains) > 1 else ''} {listed}"
