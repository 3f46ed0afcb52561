"""When, during warmup, the metric is estimated anew."""

from __future__ import annotations

import jax
import jax.numpy as jnp

__all__ = ["is_window_end", "window_ends"]

_FRACTIONS = (0.05, 0.1, 0.2, 0.35, 0.55, 0.8)
"""Windows grow as the chains settle; the last fifth of warmup belongs to the step size alone."""


def window_ends(num_warmup: int | jax.Array) -> jax.Array:
    """Return the iteration counts at which a window closes, int32, not decreasing; one below 2 closes none.

    >>> window_ends(100).tolist()
    [5, 10, 20, 35, 55, 80]
    """
    return jnp.round(jnp.asarray(_FRACTIONS) * num_warmup).astype(jnp.int32)


def is_window_end(count: jax.Array, num_warmup: int | jax.Array) -> jax.Array:
    """Whether a window closes after `count` iterations, () bool.

    A window of a single iteration would say nothing about a spread.
    """
    return (count >= 2) & jnp.isin(count, window_ends(num_warmup))
