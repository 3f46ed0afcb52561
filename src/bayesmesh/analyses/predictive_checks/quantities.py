"""Compute test quantities of outcomes from sums over rows, accumulated over blocks."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Kind = Literal["real", "whole", "binary", "class"]
"""What an outcome is: a number, a whole number such as a count, 0 or 1, or the code of a class."""

LEVEL = 0.008
"""Largest probability that any quantity of a correct model is said to differ; with the 0.2% of LOO-PIT, it makes 1%."""

MOST_CLASSES = 20

OF_CLASS = "share of class "
"""Prefix of the names of quantities of classes."""

LOG, COUNTS = "log", "counts"
"""Proposed in place of a term, where logs of the outcomes would be less skewed, and where the outcomes are whole numbers from 0 or 1."""

NUM_COMPLETED = "num_completed"
"""Attribute of ``quantities.zarr``: censored outcomes, drawn given what is known of them."""

FITTED = "(predicted)"
"""Variable of bins that holds the predicted mean."""


class Bin(NamedTuple):
    """The rows of one bin of a variable, for the calibration plot.

    Attributes:
        variable, label: of the bin.
        num_rows: rows in it.
        predicted: their predicted mean outcome, or probability of a class.
        observed: their observed mean outcome, or share of rows in it.
        low, high: simultaneous band, which holds the observed values of all bins of the variable with 99% probability.
        at: mean of the variable; NaN for levels.
        interval_low, interval_high: quantiles that enclose the middle 90% of the simulated outcomes of all rows of the bin
            together; NaN if an outcome is 0 or 1.
        middle_low, middle_high: quantiles that enclose the middle 90% of the observed outcomes; NaN likewise.
    """

    variable: str
    label: str
    num_rows: int
    predicted: float
    observed: float
    low: float
    high: float
    at: float = math.nan
    interval_low: float = math.nan
    interval_high: float = math.nan
    middle_low: float = math.nan
    middle_high: float = math.nan


def sum_powers(values: Float[np.ndarray, "draw value"], centre: float, scale: float) -> Float[np.ndarray, "draw sum"]:
    """Return sums over the values of each draw: powers 0 to 4 of (value - centre) / scale, zeros, smallest, largest."""
    z = (values - centre) / scale
    powers = [np.ones_like(z), z, z**2, z**3, z**4, values == 0]
    return np.stack([*(each.sum(axis=1) for each in powers), values.min(axis=1), values.max(axis=1)], axis=1)


def add_sums(one: Float[np.ndarray, "draw sum"], other: Float[np.ndarray, "draw sum"]) -> Float[np.ndarray, "draw sum"]:
    """Return the sums over the values of two blocks."""
    ends = [np.minimum(one[:, -2], other[:, -2]), np.maximum(one[:, -1], other[:, -1])]
    return np.concatenate([one[:, :-2] + other[:, :-2], np.stack(ends, axis=1)], axis=1)


def kind_of(dtype: np.dtype, smallest: float, largest: float, *, is_class: bool) -> Kind:
    """Return the kind of an outcome.

    Args:
        dtype: of the outcome.
        smallest, largest: outcomes of all rows.
        is_class: whether it holds codes of levels.
    """
    if is_class:
        return "class"
    if dtype.kind == "b" or (dtype.kind in "iu" and smallest >= 0 and largest <= 1):
        return "binary"
    return "whole" if dtype.kind in "iu" else "real"


def quantities_of(
    sums: Float[np.ndarray, "draw sum"], kind: Kind, centre: float, scale: float
) -> dict[str, Float[np.ndarray, " draw"]]:
    """Return quantity -> its value for each draw, from `sum_powers`.

    >>> sums = sum_powers(np.array([[0.0, 1.0, 5.0]]), 1.0, 2.0)
    >>> {name: float(each[0].round(4)) for name, each in quantities_of(sums, "whole", 1.0, 2.0).items()}
    {'mean': 2.0, 'variance / mean': 2.3333, 'share of zeros': 0.3333, 'largest': 5.0}
    """
    count, zeros, smallest, largest = sums[:, 0], sums[:, 5], sums[:, 6], sums[:, 7]
    first, second, third, fourth = (sums[:, power] / count for power in range(1, 5))
    mean = centre + scale * first
    if kind == "binary":
        return {"share of 1": 1 - zeros / count}
    variance = second - first**2
    with np.errstate(invalid="ignore", divide="ignore"):
        if kind == "whole":
            ratio = np.where(mean > 0, scale**2 * variance / mean, 0.0)
            return {"mean": mean, "variance / mean": ratio, "share of zeros": zeros / count, "largest": largest}
        third_central = third - 3 * first * second + 2 * first**3
        fourth_central = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
        return {
            "mean": mean,
            "standard deviation": scale * np.sqrt(np.maximum(variance, 0)),
            "skewness": np.where(variance > 0, third_central / variance**1.5, 0.0),
            "kurtosis": np.where(variance > 0, fourth_central / variance**2, 0.0),
            "smallest": smallest,
            "largest": largest,
        }


def p_value(simulated: Float[np.ndarray, " draw"], observed: float, *, is_upper: bool = False) -> float:
    """Return the two-sided posterior predictive p value, or the upper one; ties count for both sides.

    >>> p_value(np.arange(99.0), 98.0), p_value(np.zeros(99), 0.0)
    (0.04, 1.0)
    """
    num = len(simulated) + 1
    sides = [(1 + int((simulated <= observed).sum())) / num, (1 + int((simulated >= observed).sum())) / num]
    return sides[1] if is_upper else min(1.0, 2 * min(sides))
