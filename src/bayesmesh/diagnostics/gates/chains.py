"""Detect draws of summaries that are not finite, and chains that stay at one point; each has a gate of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Shaped

from bayesmesh.diagnostics.gates.messages import missed_gate
from bayesmesh.diagnostics.verdict import GateResult

MOST_CHAINS = 8
"""Number of chains to name in the message of the gate."""


class NonFinite:
    """The draws that are not finite.

    Attributes:
        count: number of values.
        first: chain -> its first non-finite draw, and the coordinate.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: dict[int, tuple[int, str]] = {}

    def add(self, draws: Shaped[np.ndarray, "chain draw coordinate"], places: Sequence[str]) -> None:
        """Add a block of draws.

        Args:
            draws: any real dtype.
            places: name of each coordinate.

        >>> found = NonFinite()
        >>> found.add(np.array([[[1.0], [2.0]], [[3.0], [-np.inf]]]), ["log_density"])
        >>> found.count, found.first
        (1, {1: (1, 'log_density')})
        """
        is_odd = ~np.isfinite(draws)
        self.count += int(is_odd.sum())
        for chain in map(int, np.flatnonzero(is_odd.any(axis=(1, 2)))):
            draw, coordinate = (int(index[0]) for index in np.nonzero(is_odd[chain]))
            self.first[chain] = min(self.first.get(chain, (draw, places[coordinate])), (draw, places[coordinate]))

    def gate(self) -> GateResult | None:
        """Return a failed gate that names the chains; None if all draws are finite.

        No configuration lowers its severity: a sample with such a draw has no mean and no R-hat.
        """
        if not self.first:
            return None
        chains = sorted(self.first.items())
        named = [f"chain {chain} from draw {draw} on ({place})" for chain, (draw, place) in chains[:MOST_CHAINS]]
        more = [f"{len(chains) - MOST_CHAINS} more chains"] if len(chains) > MOST_CHAINS else []
        chain, (_, place) = min(chains, key=lambda item: item[1])
        of = " of a summary is" if self.count == 1 else "s of summaries are"
        found = f"{self.count} value{of} infinite or not a number, in {', '.join([*named, *more])}"
        return missed_gate("finite", "fail", float(self.count), 0.0, f"{place} of chain {chain}", found, hint="")


FEWEST_DRAWS = 100
"""Fewest draws at one point for a chain to count as stuck; a random walk that rejects three proposals of four stays for
a dozen."""


_WINDOW = 4096
"""Number of coordinates compared at a time."""


class Stay(NamedTuple):
    """The longest stay of a chain at one point: draws `start` to ``stop - 1``."""

    chain: int
    start: int
    stop: int


class Movement:
    """The draws at which chains have moved, in any coordinate.

    Draws are compared with each other, so nothing depends on what a kernel calls an accepted move, and a discrete
    quantity may keep its value while another coordinate moves.
    """

    def __init__(self) -> None:
        self._moved: Bool[np.ndarray, "chain step"] | None = None

    def add(self, draws: Shaped[np.ndarray, "chain draw coordinate"]) -> None:
        """Add a block of draws, of any real dtype."""
        if self._moved is None:
            self._moved = np.zeros((draws.shape[0], draws.shape[1] - 1), bool)
        # Most steps move every coordinate: a step that has moved one coordinate is not compared again.
        edges = sorted({0, 1, *range(_WINDOW, draws.shape[2], _WINDOW), draws.shape[2]})
        for low, high in itertools.pairwise(edges):
            part = draws[:, :, low:high]
            chains, steps = np.nonzero(~self._moved)
            self._moved[chains, steps] = (part[chains, steps + 1] != part[chains, steps]).any(axis=-1)

    def stays(self) -> list[Stay]:
        """Return the longest stay of each chain; none without draws.

        >>> movement = Movement()
        >>> movement.add(np.array([[[1.0], [2.0], [2.0], [2.0]], [[5.0], [5.0], [5.0], [5.0]]]))
        >>> movement.stays()
        [Stay(chain=0, start=1, stop=4), Stay(chain=1, start=0, stop=4)]
        """
        found = []
        for chain, moved in enumerate([] if self._moved is None else self._moved):
            edges = np.concatenate([[0], np.flatnonzero(moved) + 1, [len(moved) + 1]])
            longest = int(np.diff(edges).argmax())
            found.append(Stay(chain, int(edges[longest]), int(edges[longest + 1])))
        return found

    def gate(self) -> GateResult | None:
        """Return a missed gate that names the chains; None if all chains move.

        A constant chain fails the gate. A chain that stays at one point for more than half of the draws, and for at
        least `FEWEST_DRAWS`, causes a warning: R-hat decides whether the others agree with it.
        """
        stays, num_draws = self.stays(), 0 if self._moved is None else self._moved.shape[1] + 1
        constant = [stay.chain for stay in stays if 1 < num_draws == stay.stop - stay.start]
        fewest = max(FEWEST_DRAWS, num_draws // 2 + 1)
        stuck = [s for s in stays if s.chain not in constant and s.stop - s.start >= fewest]
        if not constant and not stuck:
            return None
        said = [f"chain {chain} is constant over all {num_draws} draws" for chain in constant]
        said += [f"chain {s.chain} stays at one point from draw {s.start} to draw {s.stop - 1}" for s in stuck]
        more = [f"{len(said) - MOST_CHAINS} more chains"] if len(said) > MOST_CHAINS else []
        where = f"chain {constant[0] if constant else stuck[0].chain}"
        found = f"{len(said)} chain{'s do' if len(said) > 1 else ' does'} not move: {', '.join([*said[:MOST_CHAINS], *more])}"
        return missed_gate("movement", "fail" if constant else "warn", float(len(said)), 0.0, where, found, hint="")
