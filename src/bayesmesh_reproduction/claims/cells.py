"""Checks that read ours from a table: a cell, a statistic of a column, a trend, or a ratio or difference of cells.

A check takes the results and, by name, the arguments that `published.yaml` gives it: the file, the column, and further columns
with the values of the requested rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesmesh_reproduction.claims.recomputation import entropy
from bayesmesh_reproduction.claims.results import Reading, Results, Statistic


def num_distinct(values: np.ndarray) -> int:
    """Return the number of distinct values."""
    return len(np.unique(values))


STATISTICS: dict[str, Statistic] = {
    "mean": np.mean, "sum": np.sum, "min": np.min, "max": np.max, "entropy": entropy, "num_distinct": num_distinct,
}  # fmt: skip
"""Statistics of a column, by their names in `published.yaml`."""


def cell(results: Results, file: str, column: str, statistic: str = "", **where: Any) -> Reading:
    """Return the cell of the only requested row, or a statistic of a column over all of them."""
    rows = results.rows(file, **where)
    return rows.over(column, STATISTICS[statistic]) if statistic else rows.only(column)


def ratio(results: Results, over: dict[str, Any], **where: Any) -> Reading:
    """Return a cell divided by the one whose arguments differ by `over`."""
    return cell(results, **where) / cell(results, **{**where, **over})


def difference(results: Results, less: dict[str, Any], **where: Any) -> Reading:
    """Return a cell less the one whose arguments differ by `less`."""
    return cell(results, **where) - cell(results, **{**where, **less})


def spread(results: Results, file: str, column: str, **where: Any) -> Reading:
    """Return the ratio of the largest to the smallest value of a column."""
    return results.rows(file, **where).spread(column)


def slope(results: Results, file: str, column: str, along: str, **where: Any) -> Reading:
    """Return the slope of a column against another, both in logarithms."""
    return results.rows(file, **where).slope(column, along)


def increase(results: Results, along: str, points: list[float], **where: Any) -> Reading:
    """Return the increase of a cell between the last two of three points over that between the first two."""
    first, middle, last = (cell(results, **{**where, along: point}) for point in points)
    return (last - middle) / (middle - first)


def mcse(results: Results, file: str, column: str, statistic: str = "mean", **where: Any) -> Reading:
    """Return the Monte Carlo standard error of a column, which the column ``mcse_`` and its name holds."""
    return cell(results, file, f"mcse_{column}", statistic, **where)


def error_of_moment(results: Results, file: str, column: str, **where: Any) -> Reading:
    """Return the standard error of a moment of independent chains, in the column of its name and ``_se``."""
    return cell(results, file, f"{column}_se", **where)


def sd(results: Results, file: str, column: str, **where: Any) -> Reading:
    """Return the Monte Carlo standard deviation of a cell, in the column of its name and ``_sd``."""
    return cell(results, file, f"{column}_sd", **where)


def shape(results: Results, file: str, array: str) -> Reading:
    """Return the shape of a stored array."""
    return results.shape(file, array)


def gradients_a_second(results: Results, experiment: str) -> Reading:
    """Return the gradients of all chains per second of sampling."""
    rows = results.rows(f"{experiment}/ledger.csv", phase="sample")
    return rows.over("gradients", np.sum) / rows.over("seconds", np.sum)


def steps_a_second(results: Results, experiment: str) -> Reading:
    """Return the gradients of one chain per second of sampling."""
    rate = gradients_a_second(results, experiment)
    return rate / results.value(f"{experiment}/diagnostics/verdict.json", "num_chains")


def accuracy(results: Results, experiment: str, which: str) -> Reading:
    """Return the accuracy of ``single`` draws or of their ``average``, over the largest number of draws."""
    return results.rows(f"{experiment}/averaging/scores.csv").last().only(f"{which}_accuracy")


def gain(results: Results, experiment: str, which: str) -> Reading:
    """Return the accuracy that averaging gains."""
    return accuracy(results, experiment, "average") - accuracy(results, experiment, "single")
