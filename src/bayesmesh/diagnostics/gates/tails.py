"""Detect summaries with tails so heavy that draws cannot estimate their mean, and report them by a gate of their own.

Monte Carlo standard errors do not reveal it: if the variance is infinite, they are proportional to a standard deviation
that grows with the number of draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

from bayesmesh.diagnostics.gates.messages import missed_gate
from bayesmesh.diagnostics.psis import fit_tail
from bayesmesh.diagnostics.verdict import GateResult

LIMIT = 0.7
"""Pareto k above which the error of a mean cannot be estimated; from 1 on, the mean does not exist."""

_FARTHEST = 20.0
"""Distance from the mean, in standard deviations, that a draw must exceed for a tail to be fitted. If the variance is
infinite, a few draws make up nearly all of the sample variance: among 4,000 draws of a Pareto distribution at the
limit, the farthest lies beyond 20 in 98 of 100 runs (among 1,000 draws, in half of them)."""

_FEWEST = 25
"""Fewest draws in a tail for it to be fitted."""


class HeavyTails:
    """The coordinates with a heavy tail.

    Attributes:
        found: place -> Pareto k of its heavier tail.
    """

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def add(
        self,
        draws: Shaped[np.ndarray, "chain draw coordinate"],
        places: Sequence[str],
        mean: Float[np.ndarray, " coordinate"],
        sd: Float[np.ndarray, " coordinate"],
    ) -> None:
        """Add a block of draws, of any real dtype.

        >>> found = HeavyTails()
        >>> draws = np.random.default_rng(0).standard_cauchy((4, 1000, 1))
        >>> found.add(draws, ["shape"], draws.mean((0, 1)), draws.std((0, 1)))
        >>> 0.7 < found.found["shape"] < 1.4
        True
        """
        far = np.maximum(draws.max(axis=(0, 1)) - mean, mean - draws.min(axis=(0, 1)))
        with np.errstate(invalid="ignore"):
            suspects = np.flatnonzero((far > _FARTHEST * sd) & np.isfinite(far))
        for at in map(int, suspects):
            values = draws[:, :, at].reshape(-1).astype(np.float64)
            k = max(_pareto_k(values), _pareto_k(-values))
            if k > LIMIT:
                self.found[places[at]] = k

    def gate(self) -> GateResult | None:
        """Return a warning that names the coordinate with the heaviest tail; None if there is none."""
        if not self.found:
            return None
        worst = max(self.found, key=lambda place: self.found[place])
        k = self.found[worst]
        means = (
            "the mean of its draws does not converge" if k > 1 else "the draws do not determine the error of its mean"
        )
        others = f"; {len(self.found)} values have such tails" if len(self.found) > 1 else ""
        found = f"Pareto k of {worst} is {k:.2g}, limit {LIMIT:g}: {means}{others}"
        return missed_gate("tails", "warn", k, LIMIT, worst, found)


def _pareto_k(values: Float[np.ndarray, " draw"]) -> float:
    """Return Pareto k of the upper tail; minus infinity if it is too short, or its lowest quarter is one value.

    The number of draws sets the length of the tail; their autocorrelation is not taken into account.

    Reference:
        Vehtari et al. 2024, "Pareto smoothed importance sampling", arXiv:1507.02646, section 3.
    """
    length = min(values.size // 5, int(3 * values.size**0.5))
    if length < _FEWEST:
        return -np.inf
    largest = np.sort(np.partition(values, values.size - length - 1)[values.size - length - 1 :])
    excess = largest[1:] - largest[0]
    if excess[int(length / 4 + 0.5) - 1] <= excess[0]:
        return -np.inf
    return float(fit_tail(excess[None])[0][0])
