"""Schedule the windows of warmup, at whose ends the metric is re-estimated."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

EARLY_FRACTION = 0.2
"""End of the early phase, as a fraction of warmup; also the end of a window."""

_FRACTIONS = (0.05, 0.1, 0.2, 0.35, 0.55, 0.8)
"""Ends of windows, as fractions of warmup; the last fifth adapts only the step size."""

_SETTLED = _FRACTIONS[_FRACTIONS.index(EARLY_FRACTION) + 1]
"""End of the first window after the early phase, as a fraction of warmup."""


def window_ends(num_warmup: int | Int[Array, ""]) -> Int[Array, " window"]:
    """Return the iteration counts at which windows close, int32, non-decreasing; counts below 2 close none.

    >>> window_ends(100).tolist()
    [5, 10, 20, 35, 55, 80]
    """
    return jnp.round(jnp.asarray(_FRACTIONS) * num_warmup).astype(jnp.int32)


def early_end(num_warmup: int | Int[Array, ""]) -> Int[Array, ""]:
    """Return the number of iterations of the early phase, () int32.

    >>> int(early_end(100))
    20
    """
    return jnp.round(jnp.asarray(EARLY_FRACTION) * num_warmup).astype(jnp.int32)


def settled_begin(num_warmup: int | Int[Array, ""]) -> Int[Array, ""]:
    """Return the number of iterations after which the metric is estimated from the posterior, () int32, at the end of a window.

    >>> int(settled_begin(100))
    35
    """
    return jnp.round(jnp.asarray(_SETTLED) * num_warmup).astype(jnp.int32)


def is_restart(count: Int[Array, ""], num_warmup: int | Int[Array, ""]) -> Bool[Array, ""]:
    """Return whether lost chains restart after `count` iterations, () bool: at ends of windows from the early phase on.

    During the rest of warmup they diverge from the chains whose positions they took.

    >>> [count for count in range(101) if is_restart(jnp.asarray(count), 100)]
    [20, 35, 55, 80]
    """
    return is_window_end(count, num_warmup) & (count >= early_end(num_warmup))


def is_window_end(count: Int[Array, ""], num_warmup: int | Int[Array, ""]) -> Bool[Array, ""]:
    """Return whether a window closes after `count` iterations, () bool.

    A window of a single iteration carries no information about scale.
    """
    return (count >= 2) & jnp.isin(count, window_ends(num_warmup))
