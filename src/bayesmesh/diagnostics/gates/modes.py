"""Detect chains in another mode, lost or late, and report them by a gate of their own.

Chains may differ in log density. Modes of equal density, such as those that permute the components of a mixture, do not.
There a second mode shows in how long chains stay on one side of a threshold of some quantity: many times as long as on
one side of the median within that mode, where chains agree. A slow chain in a single mode stays long on one side of any
threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped

from bayesmesh.diagnostics.convergence import LEVEL
from bayesmesh.diagnostics.gates.chains import MOST_CHAINS
from bayesmesh.diagnostics.gates.messages import missed_gate
from bayesmesh.diagnostics.verdict import GateResult
from bayesmesh.store.posterior.coordinates import choose_coordinates

SEPARATION = 5.0
"""Distance of a chain's mean log density from the median chain's, in standard deviations within chains, beyond which
the two hardly share a value; autocorrelation explains one or two."""

FEWEST_NATS = 3.0
"""Distance in nats that chains are always allowed, even if the log density hardly varies within them."""


NUM_PARTS = 10
"""Number of parts into which draws are cut to find late chains."""

FEWEST_OF_PART = 20
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

    A chain that is apart throughout is one of `separated_chains`; chains with fewer than `NUM_PARTS * FEWEST_OF_PART`
    draws are not examined.
    """
    usable, kept, _ = _usable(lp)
    length = lp.shape[1] // NUM_PARTS
    if not usable.size or length < FEWEST_OF_PART:
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
    messages += [_describe_late_chains(late)] if late else []
    apart = found | {chain: nats for chain, (_, nats) in late.items()}
    worst = max(apart, key=lambda chain: abs(apart[chain]))
    return failed_by_modes(len(apart), f"chain {worst}", ". ".join(messages), is_second=bool(found))


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


def failed_by_modes(num_chains: int, where: str, message: str, *, is_second: bool) -> GateResult:
    """Return the failed gate `modes`.

    Args:
        num_chains: how many are in another mode or came late.
        where: a place where this shows.
        message: the finding, for both cases; for chains that came late, also the remedy.
        is_second: whether any chain stays in another mode, so that more draws do not bring chains together.
    """
    hint = None if is_second else ""
    return missed_gate("modes", "fail", float(num_chains), 0.0, where, message, hint=hint, beyond_draws=is_second)


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


def _describe_late_chains(late: Mapping[int, tuple[int, float]]) -> str:
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


LOG_DENSITIES = ("log_density", "log_likelihood")
"""Summaries that are not examined: `gates.modes` tells their chains apart."""

FEWEST_DRAWS = 100
"""Fewest draws per chain from which modes are sought."""

LEAST_STAY = 50.0
"""Ratio of stays from which the two sides count as two modes. With 1,000 draws of 4 and of 32 chains, it is above 200
where a mixture permutes its components, below 2 where chains mix, 6 in a funnel, and at most 38 in 400 runs of a
first-order autoregression with coefficient 0.999."""

MOST_SPREAD = 0.5
"""Variance of the means of half chains on a side, divided by the variance within them, up to which the side counts as
one mode that chains explore. It is 0.02 for 500 draws of an autoregression with coefficient 0.8, and above 1 for chains
too slow to meet."""

FEWEST_OF_HALF = 50
"""Fewest draws of a half chain on a side for its mean to count."""

NUM_THRESHOLDS = 39
"""Number of thresholds to try, between quantiles."""

MOST_COORDINATES = 50
"""Largest number of coordinates of a block to examine, evenly spaced."""


class TwoModes(NamedTuple):
    """Two modes of one coordinate.

    Attributes:
        place: name of the coordinate.
        threshold: value between them.
        ratio: mean length of stays on a side, divided by that of stays on one side of its own median; the smaller of
            the two.
        is_above: (chain, draw), whether a draw is above the threshold.
    """

    place: str
    threshold: float
    ratio: float
    is_above: Bool[np.ndarray, "chain draw"]

    @property
    def chains(self) -> list[int]:
        """Chains that came late, if that is all, and otherwise those mostly in the rarer mode."""
        return chains_that_went_over(self.is_above) or chains_on_rarer_side(self.is_above)


class ModeStays:
    """The coordinate with the clearest two modes, over all blocks of draws added."""

    def __init__(self) -> None:
        self.clearest: TwoModes | None = None

    def add(
        self,
        name: str,
        draws: Shaped[np.ndarray, "chain draw coordinate"],
        places: Sequence[str],
        chance: Float[np.ndarray, " coordinate"],
    ) -> None:
        """Examine the coordinates of an array on which chains disagree beyond chance.

        Args:
            name: of the array.
            draws: of any real dtype.
            places: names of the coordinates.
            chance: probabilities of R-hats at least as large as theirs if chains agree.
        """
        disagree = np.flatnonzero(chance < LEVEL) if name not in LOG_DENSITIES else np.zeros(0, int)
        for position in disagree[choose_coordinates(len(disagree), MOST_COORDINATES)] if disagree.size else ():
            found = find_modes(draws[:, :, position], places[position])
            if found is not None and (self.clearest is None or found.ratio > self.clearest.ratio):
                self.clearest = found

    def gate(self) -> GateResult | None:
        """Return a failed gate `modes` that names the coordinate and the chains; None if no coordinate has two modes."""
        found = self.clearest
        if found is None:
            return None
        late = chains_that_went_over(found.is_above)
        said = _describe_late(found, late) if late else _describe(found)
        return failed_by_modes(max(1, len(found.chains)), found.place, said, is_second=not late)


def chains_that_went_over(is_above: Bool[np.ndarray, "chain draw"]) -> list[int]:
    """Return the chains that crossed, if all chains end on the same side and none crosses twice; otherwise none."""
    moves = np.count_nonzero(is_above[:, 1:] != is_above[:, :-1], axis=1)
    ends = is_above[:, -1]
    if moves.max(initial=0) > 1 or (ends.any() and not ends.all()):
        return []
    return [int(chain) for chain in np.flatnonzero(moves)]


def chains_on_rarer_side(is_above: Bool[np.ndarray, "chain draw"]) -> list[int]:
    """Return the chains with most of their draws on the side that has fewer draws."""
    rarer = is_above if is_above.mean() <= 0.5 else ~is_above
    return [int(chain) for chain in np.flatnonzero(rarer.mean(axis=1) > 0.5)]


def _describe_late(found: TwoModes, late: Sequence[int]) -> str:
    side = "below" if found.is_above[late[0], -1] else "above"
    num_draws = max(int(np.count_nonzero(found.is_above[chain] != found.is_above[chain, -1])) for chain in late)
    return describe_late(late, f"{found.place} {side} {found.threshold:.4g}", num_draws)


def _describe(found: TwoModes) -> str:
    share = found.is_above.mean(axis=1)
    sides = [
        f"{name_chains([int(chain) for chain in np.flatnonzero(share == whole)])} always {word}"
        for whole, word in ((0.0, "below"), (1.0, "above"))
        if (share == whole).any()
    ]
    num_moves = _count_changes(found.is_above)
    went = "never moved" if not num_moves else f"moved only {'once' if num_moves == 1 else f'{num_moves:,} times'}"
    return (
        f"a second mode: {found.place} is below {found.threshold:.4g} in {np.count_nonzero(~found.is_above):,} of"
        f" {found.is_above.size:,} draws and above it in the others, and chains {went} from one side to the other"
        f"{': ' * bool(sides)}{', '.join(sides)}; more draws are unlikely to make them agree"
    )


def find_modes(draws: Shaped[np.ndarray, "chain draw"], place: str) -> TwoModes | None:
    """Return the two modes of a coordinate; None if chains do not stay on one side of any threshold.

    Args:
        draws: of the coordinate.
        place: its name.

    >>> wave = np.sin(np.arange(200.0))
    >>> find_modes(np.stack([wave, wave + 5, wave]), "level").is_above.mean(axis=1).tolist()
    [0.0, 1.0, 0.0]
    """
    if draws.shape[1] < FEWEST_DRAWS or not np.isfinite(draws).all():
        return None
    values = draws.astype(np.float64)
    # The outermost quantiles must be able to fall within a single chain in the other mode.
    least = min(0.05, 0.5 / len(values))
    quantiles = np.quantile(values, np.linspace(least, 1 - least, NUM_THRESHOLDS + 1))
    thresholds = (quantiles[1:] + quantiles[:-1]) / 2
    crossings = np.array([_count_changes(values > threshold) for threshold in thresholds])
    crossings[(thresholds <= values.min()) | (thresholds >= values.max())] = values.size
    # Among the thresholds that are crossed least often, the one in the widest gap.
    best = int(np.lexsort((-np.diff(quantiles), crossings))[0])
    is_above = values > thresholds[best]
    if is_above.all() or not is_above.any():
        return None
    ratio = min(_relative_stay(values, side) for side in (is_above, ~is_above))
    if ratio < LEAST_STAY or not all(_is_explored(values, side) for side in (is_above, ~is_above)):
        return None
    return TwoModes(place, float(thresholds[best]), ratio, is_above)


def _count_changes(side: Bool[np.ndarray, "chain draw"]) -> int:
    return int(np.count_nonzero(side[:, 1:] != side[:, :-1]))


def _relative_stay(values: Float[np.ndarray, "chain draw"], side: Bool[np.ndarray, "chain draw"]) -> float:
    """Return how long a chain stays on a side on average, relative to how long it stays on one side of its own median."""
    num_stays = np.count_nonzero(side[:, 0]) + np.count_nonzero(side[:, 1:] & ~side[:, :-1])
    is_high = values > np.median(values[side])
    num_inner = np.count_nonzero(side[:, 1:] & side[:, :-1] & (is_high[:, 1:] != is_high[:, :-1]))
    return float((num_stays + num_inner) / num_stays)


def _is_explored(values: Float[np.ndarray, "chain draw"], side: Bool[np.ndarray, "chain draw"]) -> bool:
    """Return whether half chains on a side agree; if not, chains are too slow to tell modes apart."""
    of_chains = [values[chain, own] for chain, own in enumerate(side)]
    halves = [half for own in of_chains for half in np.array_split(own, 2) if len(own) >= 2 * FEWEST_OF_HALF]
    if len(halves) < 2:
        return True
    within = float(np.mean([half.var() for half in halves]))
    return bool(np.var([half.mean() for half in halves], ddof=1) <= MOST_SPREAD * within)
