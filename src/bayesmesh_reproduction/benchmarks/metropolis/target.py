"""The target: a mixture of four normals, its moments, and the density that was published instead.

Source:
    R. Louf 2019, "Massively parallel MCMC with JAX".

The published log density is ``-logsumexp(log(weights) - log(component densities))``: it subtracts where it should add,
and negates the result. That is the weighted harmonic mean of the component densities instead of their weighted sum; the
narrow components cut off the tails of the wide ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import jax

LOCATIONS, SCALES, WEIGHTS = (-2.0, 0.0, 3.2, 2.5), (1.2, 1.0, 5.0, 2.8), (0.2, 0.3, 0.1, 0.4)

START = 0.0
"""Where every chain begins."""

STEP = 0.1
"""Standard deviation of the published proposal."""

MEAN = sum(w * m for w, m in zip(WEIGHTS, LOCATIONS, strict=True))
"""0.92"""

VARIANCE = sum(w * (s**2 + m**2) for w, m, s in zip(WEIGHTS, LOCATIONS, SCALES, strict=True)) - MEAN**2
"""9.7016"""


def density[A: (np.ndarray, "jax.Array")](x: A, exp: Callable[[A], A]) -> A:
    """Return sqrt(2 pi) times the density.

    Args:
        x: array of any library; the result has its type.
        exp: the exponential of that library.
    """
    # Constants have the type of the array, to avoid promotion.
    kind, parts = x.dtype.type, []
    for m, s, w in zip(LOCATIONS, SCALES, WEIGHTS, strict=True):
        # One multiply-add, with one rounding less than subtracting the location first.
        y = x * kind(1 / (math.sqrt(2) * s)) - kind(m / (math.sqrt(2) * s))
        parts.append(exp(kind(math.log(w / s)) - y * y))
    return (parts[0] + parts[1]) + (parts[2] + parts[3])


def cdf(x: float) -> float:
    """Return the probability below a number.

    >>> round(cdf(MEAN), 3)
    0.592
    """
    parts = zip(WEIGHTS, LOCATIONS, SCALES, strict=True)
    return sum(w * 0.5 * math.erfc((m - x) / (s * math.sqrt(2))) for w, m, s in parts)
