"""Choose the chains that count in pooled adaptation: neither those far below the others nor those that do not move."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_MARGIN, _DEVIATIONS = 10.0, 10.0
"""Nats, and median deviations, from which a chain is far below the others."""

_FORGETS = 0.1
"""Weight of the newest iteration in the running acceptance of a chain."""

_STUCK = 0.1
"""A chain is stuck if its running acceptance is below this fraction of the median."""


def near_others(lp: Float[Array, " chain"]) -> Bool[Array, " chain"]:
    """Return which chains have a finite log density that is not far below the median of the finite ones.

    Chains far above it count: the mode of a hierarchical model has a higher density than its typical set, and a majority may be lost.

    >>> near_others(jnp.asarray([-3.0, -90.0, jnp.nan, -4.0, -3.5])).tolist()
    [True, False, False, True, True]
    """
    finite = jnp.where(jnp.isfinite(lp), lp, jnp.nan)
    median = jnp.nanmedian(finite)
    deviation = jnp.nanmedian(jnp.abs(finite - median))
    return finite >= median - _MARGIN - _DEVIATIONS * deviation


def update_running(running: Float[Array, " chain"], acceptance: Float[Array, " chain"]) -> Float[Array, " chain"]:
    """Return the running mean of each chain's acceptance after one iteration, (chain,) float64."""
    return running + _FORGETS * (jnp.where(jnp.isfinite(acceptance), acceptance, 0.0) - running)


def is_moving(running: Float[Array, " chain"]) -> Bool[Array, " chain"]:
    """Return which chains still accept proposals, compared with the median; no common step size would suit those that do not.

    >>> is_moving(jnp.asarray([0.8, 0.7, 0.01, 0.6])).tolist()
    [True, True, False, True]
    """
    return running >= _STUCK * jnp.median(running)


def mean_over(statistic: Float[Array, " chain"], counts: Bool[Array, " chain"]) -> Float[Array, ""]:
    """Return the mean over the chains that count, () float64; 0 if none does.

    >>> float(mean_over(jnp.asarray([0.5, 0.0, 1.0]), jnp.asarray([True, False, True])))
    0.75
    """
    return jnp.sum(jnp.where(counts, statistic, 0.0)) / jnp.maximum(jnp.sum(counts), 1)
