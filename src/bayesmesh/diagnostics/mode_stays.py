"""Find modes between which chains seldom go, by the draws of a quantity on both sides of a threshold.

Modes of equal density, such as those that exchange the components of a mixture, do not differ in log density, so
`mode_gate` cannot tell their chains apart. Here a second mode is seen by how long chains stay on one side: many times as
long as on one side of the median of that mode, in which they agree. A slow chain of a single mode stays long everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped

from bayesmesh.diagnostics.mode_gate import describe_late, failed_by_modes, name_chains
from bayesmesh.diagnostics.rhat_chance import LEVEL
from bayesmesh.diagnostics.verdict import GateResult
from bayesmesh.store.posterior_coordinates import choose_coordinates

LOG_DENSITIES = ("log_density", "log_likelihood")
"""Summaries whose chains `mode_gate` tells apart."""

FEWEST_DRAWS = 100
"""Draws of each chain from which it is said where chains stay."""

LEAST_STAY = 50.0
"""Ratio of stays beyond which two sides are two modes. With 1,000 draws of 4 and 32 chains it is above 200 where a mixture
exchanges its components, below 2 where chains mix, 6 in a funnel, and at most 38 in 400 runs of autoregression by 0.999."""

MOST_SPREAD = 0.5
"""Variance of the means of half chains on a side, over that within them, up to which the side is one mode that chains explore:
it is 0.02 for 500 draws of an autoregression by 0.8, and above 1 for chains that are too slow to meet."""

FEWEST_OF_HALF = 50
"""Draws of half a chain on a side whose mean counts."""

NUM_THRESHOLDS = 39
"""Values between quantiles that are tried."""

MOST_COORDINATES = 50
"""Coordinates of a block that are looked at, evenly spaced."""


class TwoModes(NamedTuple):
    """Two modes of one coordinate.

    Attributes:
        place: name of the coordinate.
        threshold: value between them.
        ratio: mean length of stays on a side over that of stays on a side of its own median; the smaller of both sides.
        is_above: (chain, draw), whether a draw is above the threshold.
    """

    place: str
    threshold: float
    ratio: float
    is_above: Bool[np.ndarray, "chain draw"]

    @property
    def chains(self) -> list[int]:
        """Chains that came late, if it is only that, else those that are mostly in the rarer mode."""
        return chains_that_went_over(self.is_above) or chains_on_rarer_side(self.is_above)


class ModeStays:
    """The coordinate with the clearest two modes, over all blocks of draws that are added."""

    def __init__(self) -> None:
        self.clearest: TwoModes | None = None

    def add(
        self,
        name: str,
        draws: Shaped[np.ndarray, "chain draw coordinate"],
        places: Sequence[str],
        chance: Float[np.ndarray, " coordinate"],
    ) -> None:
        """Look through coordinates of an array whose chains disagree beyond chance.

        Args:
            name: of the array.
            draws: of any real dtype.
            places: names of the coordinates.
            chance: probabilities of their R-hat if chains agree.
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
    """Return the chains that went over once, where all chains end on one side; none otherwise."""
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
    went = "never went" if not num_moves else f"went only {'once' if num_moves == 1 else f'{num_moves:,} times'}"
    return (
        f"a second mode: {found.place} is below {found.threshold:.4g} in {np.count_nonzero(~found.is_above):,} of"
        f" {found.is_above.size:,} draws and above it in the others, and chains {went} from one side to the other"
        f"{': ' * bool(sides)}{', '.join(sides)}; more draws will hardly make them agree"
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
    # A single chain in the other mode has to have a quantile of its own.
    least = min(0.05, 0.5 / len(values))
    quantiles = np.quantile(values, np.linspace(least, 1 - least, NUM_THRESHOLDS + 1))
    thresholds = (quantiles[1:] + quantiles[:-1]) / 2
    crossings = np.array([_count_changes(values > threshold) for threshold in thresholds])
    crossings[(thresholds <= values.min()) | (thresholds >= values.max())] = values.size
    # Of those that are crossed least, the one in the widest gap.
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
    """Return the mean length of stays on a side, over that of stays on one side of the median of its draws."""
    num_stays = np.count_nonzero(side[:, 0]) + np.count_nonzero(side[:, 1:] & ~side[:, :-1])
    is_high = values > np.median(values[side])
    num_inner = np.count_nonzero(side[:, 1:] & side[:, :-1] & (is_high[:, 1:] != is_high[:, :-1]))
    return float((num_stays + num_inner) / num_stays)


def _is_explored(values: Float[np.ndarray, "chain draw"], side: Bool[np.ndarray, "chain draw"]) -> bool:
    """Whether half chains on a side agree: else chains are too slow to tell modes from places that they happen to be in."""
    of_chains = [values[chain, own] for chain, own in enumerate(side)]
    halves = [half for own in of_chains for half in np.array_split(own, 2) if len(own) >= 2 * FEWEST_OF_HALF]
    if len(halves) < 2:
        return True
    within = float(np.mean([half.var() for half in halves]))
    return bool(np.var([half.mean() for half in halves], ddof=1) <= MOST_SPREAD * within)
