"""Detect non-finite draws of summaries, and report them by a gate of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped

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
        return GateResult(
            name="finite", limit=0.0, direction="at most", value=float(self.count), where=f"{place} of chain {chain}",
            severity="fail", verdict="fail",
            found=f"{self.count} value{' of a summary is' if self.count == 1 else 's of summaries are'} infinite or not a number, in {', '.join([*named, *more])}",
        )  # fmt: skip
