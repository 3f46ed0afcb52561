"""Test quantities that depend on predictors, groups and predictions, from sums of residuals within bins.

A residual is the outcome minus the predicted mean of its row, in units of the predicted standard deviation. Of classes
it is that of the most probable class: 1 or 0, minus its probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from bayesmesh.analyses.predictive_checks.bins import Variable, bin_numbers
from bayesmesh.analyses.predictive_checks.quantities import FITTED, Kind

LEVEL_OF_BANDS = 0.95


class Bin(NamedTuple):
    """The rows of one bin of a variable, for the calibration plot.

    Attributes:
        variable, label: of the bin.
        num_rows: rows in it.
        predicted: their predicted mean outcome, or probability of the predicted class.
        observed: their observed mean outcome, or share of rows in the predicted class.
        low, high: band that holds the observed values of all bins of the variable together with 95% probability.
    """

    variable: str
    label: str
    num_rows: int
    predicted: float
    observed: float
    low: float
    high: float


class Residuals:
    """Sums of residuals within bins, over blocks of rows.

    Args:
        kind: of the outcome.
        variables: bins of the columns.
    """

    def __init__(self, kind: Kind, variables: Sequence[Variable]) -> None:
        self._kind, self._columns = kind, list(variables)
        self._fitted: Variable | None = None
        self._edges: np.ndarray | None = None
        self._sums: dict[str, np.ndarray] = {}

    def add(
        self,
        outcome: Shaped[np.ndarray, " row"],
        simulated: Shaped[np.ndarray, "draw row"],
        start: int,
    ) -> None:
        """Add the rows of a block.

        Args:
            outcome: observed.
            simulated: from each draw.
            start: number of the first row.
        """
        every = np.concatenate([outcome[None], simulated]).astype(np.float64)
        if self._kind == "class":
            every = _in_top_class(every)
        mean, scale = _predicted(every[1:], self._kind)
        residual = (every - mean) / scale
        for variable in (self._by_prediction(mean), *self._columns):
            if variable is None:
                continue
            codes = variable.codes[start : start + len(mean)] if variable.name != FITTED else variable.codes
            is_in = np.zeros((len(mean), len(variable.labels)))
            at = np.flatnonzero(codes >= 0)
            is_in[at, codes[at]] = 1.0
            # Rows, predicted means and scales beside the sums of each data set.
            about = np.stack([is_in.sum(axis=0), mean @ is_in])
            sums = np.stack([residual @ is_in, np.square(residual) @ is_in, every @ is_in])
            given = np.broadcast_to(about[:, None], (2, *sums.shape[1:]))
            found = np.concatenate([sums, given])
            before = self._sums.get(variable.name)
            self._sums[variable.name] = found if before is None else before + found

    def _by_prediction(self, mean: Float[np.ndarray, " row"]) -> Variable | None:
        """Return bins of the predicted means, whose edges are those of the first block."""
        if self._edges is None:
            first = bin_numbers(FITTED, mean)
            if first is None:
                self._edges = np.zeros(0)
                return None
            self._edges = np.array(
                [mean[first.codes == code].min() for code in range(1, len(first.labels)) if (first.codes == code).any()]
            )
        if not self._edges.size:
            return None
        codes = np.searchsorted(self._edges, mean, side="right")
        return Variable(FITTED, codes, tuple(str(i + 1) for i in range(len(self._edges) + 1)))

    def quantities(self) -> tuple[dict[str, Float[np.ndarray, " set"]], dict[str, str]]:
        """Return quantity -> its value for the observed outcomes and each simulated set, and what some are largest for.

        Large values tell of a wrong model.
        """
        found: dict[str, np.ndarray] = {}
        worst: dict[str, str] = {}
        has_spread = self._kind in ("real", "whole")
        if FITTED in self._sums:
            found["residuals by prediction"] = _of_means(self._sums[FITTED])
            if has_spread:
                found["spread of residuals by prediction"] = _of_spreads(self._sums[FITTED])
        names = [each.name for each in self._columns if each.name in self._sums]
        if names:
            for quantity, of in (("residuals by column", _of_means), ("spread of residuals by column", _of_spreads)):
                if quantity == "residuals by column" or has_spread:
                    found[quantity], place = _largest([of(self._sums[name]) for name in names])
                    worst[quantity] = names[place]
        return found, worst

    def bins(self) -> list[Bin]:
        """Return predicted and observed means by bin, of all variables."""
        labels = {each.name: each.labels for each in self._columns}
        found = []
        for name, sums in self._sums.items():
            num_rows, predicted = sums[3, 0], sums[4, 0]
            is_used = num_rows > 0
            of_sets = sums[2][:, is_used] / num_rows[is_used]
            low, high = simultaneous_band(of_sets[1:])
            if self._edges is not None and name == FITTED:
                labels[FITTED] = tuple(str(i + 1) for i in range(len(num_rows)))
            about = [labels[name][i] for i in np.flatnonzero(is_used)]
            numbers = zip(num_rows[is_used], predicted[is_used] / num_rows[is_used], of_sets[0], low, high, strict=True)
            found += [
                Bin(name, label, int(n), *map(float, rest)) for label, (n, *rest) in zip(about, numbers, strict=True)
            ]
        return found


def _in_top_class(every: Float[np.ndarray, "set row"]) -> Float[np.ndarray, "set row"]:
    """Return 1 where the class is the one that most simulated sets have in that row."""
    number = int(every.max()) + 1
    counts = np.stack([(every[1:] == code).sum(axis=0) for code in range(number)])
    return (every == counts.argmax(axis=0)).astype(np.float64)


def _predicted(
    simulated: Float[np.ndarray, "draw row"], kind: Kind
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return predicted mean and standard deviation of each row, over the draws; the latter is never 0."""
    num = len(simulated)
    if kind in ("binary", "class"):
        # Of no 1 in so many draws, the probability is not 0.
        mean = (simulated.sum(axis=0) + 0.5) / (num + 1)
        return mean, np.sqrt(mean * (1 - mean))
    mean, spread = simulated.mean(axis=0), simulated.std(axis=0)
    least = 1 / np.sqrt(num) if kind == "whole" else 1.0
    return mean, np.where(spread > 0, spread, least)


def _of_means(sums: Float[np.ndarray, "sum set bin"]) -> Float[np.ndarray, " set"]:
    """Return the sum over bins of the squared mean residual, times rows, over the mean squared residual.

    Chi-squared if residuals are independent; noise that is too large everywhere does not count.
    """
    num_rows = sums[3, 0]
    overall = sums[1].sum(axis=1) / num_rows.sum()
    return (np.square(sums[0]) / np.maximum(num_rows, 1)).sum(axis=1) / np.where(overall > 0, overall, 1.0)


def _of_spreads(sums: Float[np.ndarray, "sum set bin"]) -> Float[np.ndarray, " set"]:
    """Return the same of squared distances from the bin's mean: neither a shift nor one spread in all bins counts."""
    num_rows = sums[3, 0]
    around = sums[1] - np.square(sums[0]) / np.maximum(num_rows, 1)
    overall = around.sum(axis=1, keepdims=True) / num_rows.sum()
    return (np.square(around / np.where(overall > 0, overall, 1.0) - num_rows) / np.maximum(num_rows, 1)).sum(axis=1)


def _largest(of_columns: Sequence[Float[np.ndarray, " set"]]) -> tuple[Float[np.ndarray, " set"], int]:
    """Return the largest of several quantities in each set, in standard deviations of the simulated, and whose the observed is."""
    # Cube roots of chi-squared are nearly normal, whatever the number of bins (Wilson and Hilferty 1931).
    roots = np.cbrt(np.stack(of_columns))
    scale = roots[:, 1:].std(axis=1)
    standard = (roots - roots[:, 1:].mean(axis=1)[:, None]) / np.where(scale > 0, scale, 1.0)[:, None]
    return standard.max(axis=0), int(standard[:, 0].argmax())


def simultaneous_band(
    simulated: Float[np.ndarray, "draw bin"], level: float = LEVEL_OF_BANDS
) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """Return a band that holds a share `level` of the draws in all bins together.

    The band lies between the same quantiles in every bin; a draw is within it as far as its most extreme rank.

    Reference:
        Säilynoja, Bürkner and Vehtari 2022, doi:10.1007/s11222-022-10090-6, section 2.3, for simulated sets.
    """
    num = len(simulated)
    ranks = np.argsort(np.argsort(simulated, axis=0, kind="stable"), axis=0, kind="stable")
    depth = np.minimum(ranks, num - 1 - ranks).min(axis=1)
    cut = int(np.quantile(depth, 1 - level, method="lower"))
    in_order = np.sort(simulated, axis=0)
    return in_order[cut], in_order[num - 1 - cut]
