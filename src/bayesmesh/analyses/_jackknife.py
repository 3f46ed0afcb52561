"""Estimate the standard error of any statistic by leaving out each of several groups of the data."""

from __future__ import annotations

import numpy as np


def jackknife_se(left_out: np.ndarray) -> np.ndarray:
    """Return the delete-one-group jackknife standard error; NaN with fewer than two groups.

    Args:
        left_out: (..., groups), the statistic without each group. For a difference of two statistics of the same data,
            pass the differences, so that shared variation cancels.

    Reference:
        Efron and Stein 1981, "The jackknife estimate of variance", doi:10.1214/aos/1176345462.

    >>> round(float(jackknife_se(np.array([1.0, 2.0, 3.0]))), 4)
    1.1547
    """
    groups = left_out.shape[-1]
    errors = np.sqrt((groups - 1) * left_out.var(axis=-1)) if groups > 1 else np.full(left_out.shape[:-1], np.nan)
    return np.asarray(errors)
