"""When, during warmup, the scale is taken anew from what was seen."""

from __future__ import annotations

import jax
import jax.numpy as jnp

__all__ = ["is_window_end", "window_ends"]

_FRACTIONS = (0.05, 0.1, 0.2, 0.35, 0.55, 0.8)
"""Windows grow as the chains settle; the last fifth of warmup belongs to the step size alone."""


def window_ends(num_warmup: int) -> tuple[int, ...]:
    """Return the iteration counts at which a window closes, increasing.

    >>> window_ends(100)
    (5, 10, 20, 35, 55, 80)
    """
    return tuple(sorted({round(f * num_warmup) for f in _FRACTIONS if round(f * num_warmup) >= 2}))


def is_window_end(count: jax.Array, num_warmup: int) -> jax.Array:
    """Whether a window closes after `count` iterations, () bool."""
    ends = window_ends(num_warmup)
    return jnp.isin(count, jnp.asarray(ends)) if ends else jnp.zeros((), bool)
