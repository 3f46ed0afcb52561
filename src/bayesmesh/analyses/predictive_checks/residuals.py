"""Test quantities that depend on predictors, groups and predictions, from sums of residuals within bins.

A residual is the outcome minus the predicted mean of its row, in units of the predicted standard deviation. For
classes, it is 1 or 0 for each class, minus the probability of the class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

from bayesmesh.analyses.predictive_checks.columns import Term, Variable, bin_numbers, middle_of
from bayesmesh.analyses.predictive_checks.quantities import FITTED, MOST_CLASSES, Bin, Kind

LEVEL_OF_BANDS = 0.99

POOLED = 100_000
"""Simulated outcomes, over all rows, of which the quantiles of a bin are computed; one of each row if there are more rows."""

FARTHEST = 4.0
"""Residuals of numbers count as no larger, so that a single outlier does not decide on a bin or a term."""


class Residuals:
    """Sums of residuals within bins, over blocks of rows.

    Args:
        kind: of the outcome.
        variables: bins of the columns.
        simulated: outcomes of rows from all parts of the data, from each draw; their means place the bins of predictions.
        num_classes: number of classes of a class outcome, each treated as a 0-1 outcome; only the first `MOST_CLASSES`
            count.
        terms: terms that the model may lack.
    """

    def __init__(
        self,
        kind: Kind,
        variables: Sequence[Variable],
        simulated: Shaped[np.ndarray, "draw row"],
        num_classes: int = 0,
        terms: Sequence[Term] = (),
    ) -> None:
        self._kind, self._columns, self._terms = kind, list(variables), list(terms)
        self._of_terms: dict[int, list[np.ndarray]] = {}
        self._pooled: list[np.ndarray] = []
        self._num_parts = min(num_classes, MOST_CLASSES) if kind == "class" else 1
        self._has_intervals = kind in ("real", "whole")
        means = [_predicted(self._part(simulated, part), kind)[0] for part in range(self._num_parts)]
        self._edges = _edges(np.concatenate(means))
        self._sums: dict[tuple[str, int], np.ndarray] = {}

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
        every = np.concatenate([outcome[None], simulated])
        stop, num_rows = start + len(outcome), max((len(each.codes) for each in self._columns), default=0)
        if self._has_intervals and num_rows:
            kept = min(len(simulated), math.ceil(POOLED / num_rows))
            self._pooled.append(simulated[np.linspace(0, len(simulated) - 1, kept).astype(int)])
        for part in range(self._num_parts):
            values = self._part(every, part)
            mean, scale = _predicted(values[1:], self._kind)
            residual = (values - mean) / scale
            if self._has_intervals:
                residual = np.clip(residual, -FARTHEST, FARTHEST)
            of_rows = (residual, values, mean)
            if self._edges.size:
                codes = np.searchsorted(self._edges, mean, side="right")
                self._add_to((FITTED, 0), codes, len(self._edges) + 1, of_rows)
            for column in self._columns:
                self._add_to((column.name, part), column.codes[start:stop], len(column.labels), of_rows)
            if self._terms:
                self._add_to_terms(part, residual, start, stop)

    def _add_to_terms(self, part: int, residual: Float[np.ndarray, "set row"], start: int, stop: int) -> None:
        """Add sums of products of powers of residuals and features, of squared residuals, and rows."""
        features = np.concatenate([each.features(start, stop) for each in self._terms], axis=1)
        squares, of_residuals = np.square(features), np.square(residual)
        sums = [
            residual @ features, residual @ (features * squares), of_residuals @ squares, squares.sum(axis=0),
            np.square(squares).sum(axis=0), of_residuals.sum(axis=1), np.array(stop - start),
        ]  # fmt: skip
        before = self._of_terms.get(part)
        self._of_terms[part] = (
            sums if before is None else [one + other for one, other in zip(before, sums, strict=True)]
        )

    def _part(self, every: Shaped[np.ndarray, "set row"], part: int) -> Float[np.ndarray, "set row"]:
        """Return the outcomes, or for classes, whether they are a certain class."""
        return (every == part if self._kind == "class" else every).astype(np.float64)

    def _add_to(
        self, key: tuple[str, int], codes: np.ndarray, num_bins: int, of_rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> None:
        """Add, for each bin: sums of residuals, of squared residuals, of outcomes, of fourth powers of residuals, rows,
        predicted means."""
        residual, values, predicted = of_rows
        is_in = np.zeros((values.shape[1], num_bins))
        at = np.flatnonzero(codes >= 0)
        is_in[at, codes[at]] = 1.0
        square = np.square(residual)
        sums = np.stack([residual @ is_in, square @ is_in, values @ is_in, np.square(square) @ is_in])
        about = np.stack([is_in.sum(axis=0), predicted @ is_in])
        found = np.concatenate([sums, np.broadcast_to(about[:, None], (len(about), *sums.shape[1:]))])
        self._sums[key] = self._sums[key] + found if key in self._sums else found

    def quantities(self) -> tuple[dict[str, Float[np.ndarray, " set"]], dict[str, str]]:
        """Return quantity -> its value for the observed and each simulated set, and the columns where some are largest.

        Large values indicate misfit.
        """
        found: dict[str, np.ndarray] = {}
        worst: dict[str, str] = {}
        of_kind = {"residuals": _of_means}
        if self._has_intervals:
            of_kind["spread of residuals"] = _of_spreads
        names = [each.name for each in self._columns if (each.name, 0) in self._sums]
        for quantity, measure in of_kind.items():
            if (FITTED, 0) in self._sums:
                found[f"{quantity} by prediction"] = measure(self._sums[FITTED, 0])
            if names:
                by_column = [np.sum([measure(each) for each in self._of(name)], axis=0) for name in names]
                found[f"{quantity} by column"], place = _largest(by_column)
                worst[f"{quantity} by column"] = names[place]
        if self._terms:
            found["residuals by term"], place = _largest(self._by_term())
            worst["residuals by term"] = self._terms[place].text
        return found, worst

    def _by_term(self) -> list[Float[np.ndarray, " set"]]:
        """Return the statistic of `_of_means` for each term, with its features in place of bins.

        Where residuals scatter more at large values of a feature, so does their sum: the variance is the larger one of that
        of equal scatter and of that of the residuals around the feature's own line (White 1980, doi:10.2307/1912934).
        """
        sizes = [each.size for each in self._terms]
        ends = np.cumsum([0, *sizes])[:-1]
        found = []
        for sums, cubic, square, power, fourth, total, num_rows in self._of_terms.values():
            slope = sums / np.where(power > 0, power, 1.0)
            around = square - 2 * slope * cubic + np.square(slope) * fourth
            variance = np.maximum(around, power * (total / num_rows)[:, None])
            found.append(np.add.reduceat(np.square(sums) / np.where(variance > 0, variance, 1.0), ends, axis=1))
        return [*np.sum(found, axis=0).T]

    def _of(self, name: str) -> list[np.ndarray]:
        return [self._sums[name, part] for part in range(self._num_parts)]

    def bins(self) -> list[Bin]:
        """Return predicted and observed means by bin of each variable; for classes, of the one that fits worst."""
        found = []
        pooled = np.concatenate(self._pooled, axis=1) if self._pooled else None
        if (FITTED, 0) in self._sums:
            sums = self._sums[FITTED, 0]
            found += [each for _, each in _bins_of(FITTED, [str(i + 1) for i in range(sums.shape[2])], sums)]
        for column in self._columns:
            parts = self._of(column.name) if (column.name, 0) in self._sums else []
            if parts:
                worst = int(np.argmax([_of_means(each)[0] for each in parts]))
                of = f" (class {worst})" if self._kind == "class" else ""
                made = _bins_of(column.name, [f"{label}{of}" for label in column.labels], parts[worst])
                found += _with_values(made, column, pooled)
        return found


def _edges(mean: Float[np.ndarray, " row"]) -> Float[np.ndarray, " edge"]:
    """Return the edges of bins of predicted means; empty if all means are equal."""
    made = bin_numbers(FITTED, mean)
    if made is None:
        return np.zeros(0)
    codes = [code for code in range(1, len(made.labels)) if (made.codes == code).any()]
    return np.array([mean[made.codes == code].min() for code in codes])


def _bins_of(name: str, labels: Sequence[str], sums: Float[np.ndarray, "sum set bin"]) -> list[tuple[int, Bin]]:
    """Return the bins that have rows, with their positions."""
    num_rows = sums[4, 0]
    used = np.flatnonzero(num_rows > 0).tolist()
    of_sets, predicted = sums[2][:, used] / num_rows[used], sums[5, 0, used] / num_rows[used]
    low, high = simultaneous_band(of_sets[1:])
    numbers = np.stack([predicted, of_sets[0], low, high], axis=1).tolist()
    return [(i, Bin(name, labels[i], int(num_rows[i]), *each)) for i, each in zip(used, numbers, strict=True)]


def _with_values(bins: Sequence[tuple[int, Bin]], column: Variable, pooled: np.ndarray | None) -> list[Bin]:
    """Add the means of the variable in its bins, and the ranges of simulated and observed outcomes.

    Args:
        bins: of the column, with their positions.
        column: the column.
        pooled: simulated outcomes, (set, row); None for outcomes without order or of two values.
    """
    found = []
    simulated = () if pooled is None or not column.middle else middle_of(column, pooled)
    for i, each in bins:
        at = column.at[i] if column.at else math.nan
        ends = (*simulated[i], *column.middle[i]) if simulated else ()
        found.append(Bin(*each[:7], at, *ends))
    return found


def _predicted(
    simulated: Float[np.ndarray, "draw row"], kind: Kind
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return predicted mean and standard deviation of each row, over the draws; the latter is never 0."""
    num = len(simulated)
    if kind in ("binary", "class"):
        # If no draw is 1, the probability is still above 0.
        mean = (simulated.sum(axis=0) + 0.5) / (num + 1)
        return mean, np.sqrt(mean * (1 - mean))
    mean, spread = simulated.mean(axis=0), simulated.std(axis=0)
    least = 1 / np.sqrt(num) if kind == "whole" else 1.0
    return mean, np.where(spread > 0, spread, least)


def _of_means(sums: Float[np.ndarray, "sum set bin"]) -> Float[np.ndarray, " set"]:
    """Return the sum over bins of the squared mean residual, times rows, over the mean squared residual.

    It is chi-squared if residuals are independent; noise that is too large in all bins alike does not count.
    """
    num_rows = sums[4, 0]
    overall = sums[1].sum(axis=1) / num_rows.sum()
    return (np.square(sums[0]) / np.maximum(num_rows, 1)).sum(axis=1) / np.where(overall > 0, overall, 1.0)


def _of_spreads(sums: Float[np.ndarray, "sum set bin"]) -> Float[np.ndarray, " set"]:
    """Return the same statistic for squared distances from the bin's mean, over the variance of squared residuals.

    A shift does not count, nor do spread or tails that are the same in all bins.
    """
    num_rows = sums[4, 0]
    around = sums[1] - np.square(sums[0]) / np.maximum(num_rows, 1)
    overall = around.sum(axis=1, keepdims=True) / num_rows.sum()
    power = np.square(sums[1].sum(axis=1))
    tails = sums[3].sum(axis=1) * num_rows.sum() / np.where(power > 0, power, 1.0) - 1
    found = (np.square(around / np.where(overall > 0, overall, 1.0) - num_rows) / np.maximum(num_rows, 1)).sum(axis=1)
    return np.asarray(found / np.where(tails > 0, tails, 1.0))


def _largest(of_columns: Sequence[Float[np.ndarray, " set"]]) -> tuple[Float[np.ndarray, " set"], int]:
    """Return the largest of several standardised quantities in each set, and which one it is in the observed set."""
    # Cube roots of chi-squared are nearly normal, whatever the number of bins (Wilson and Hilferty 1931).
    roots = np.cbrt(np.stack(of_columns))
    scale = roots[:, 1:].std(axis=1)
    standard = (roots - roots[:, 1:].mean(axis=1)[:, None]) / np.where(scale > 0, scale, 1.0)[:, None]
    return standard.max(axis=0), int(standard[:, 0].argmax())


def simultaneous_band(
    simulated: Float[np.ndarray, "draw bin"], level: float = LEVEL_OF_BANDS
) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """Return a band that holds a share `level` of the draws in all bins simultaneously.

    The band lies between the same quantiles in every bin; the most extreme rank of a draw decides whether it is inside.

    Reference:
        Säilynoja, Bürkner and Vehtari 2022, doi:10.1007/s11222-022-10090-6, section 2.3, for simulated sets.
    """
    num = len(simulated)
    ranks = np.argsort(np.argsort(simulated, axis=0, kind="stable"), axis=0, kind="stable")
    depth = np.minimum(ranks, num - 1 - ranks).min(axis=1)
    cut = int(np.quantile(depth, 1 - level, method="lower"))
    in_order = np.sort(simulated, axis=0)
    return in_order[cut], in_order[num - 1 - cut]
