"""Dual averaging of a log step size (Hoffman and Gelman 2014, JMLR 15, section 3.2, equation 6)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_GAMMA, _T0, _KAPPA = 0.05, 10.0, 0.75


class StepSizeState(NamedTuple):
    """State of dual averaging, of one search or of one per chain; all fields are () or (chain,) float64.

    Attributes:
        log_step: log of the step size in use.
        log_step_average: its weighted average, used after warmup.
        error_sum: summed difference between target and observed acceptance.
        count: updates so far.
        shrinkage_point: log step size towards which the iterates shrink.
    """

    log_step: jax.Array
    log_step_average: jax.Array
    error_sum: jax.Array
    count: jax.Array  # type: ignore[assignment]  # the field shadows tuple.count, which nothing calls
    shrinkage_point: jax.Array


def init_step_size(step_size: Float[Array, "*chain"] | float, shrinkage: float = 10.0) -> StepSizeState:
    """Start at `step_size` and shrink towards `shrinkage * step_size`, because large steps are cheap to try."""
    log_step = jnp.log(jnp.asarray(step_size, jnp.float64))
    zero = jnp.zeros_like(log_step)
    return StepSizeState(log_step, log_step, zero, zero, log_step + math.log(shrinkage))


def update_step_size(
    state: StepSizeState,
    acceptance: Float[Array, "*chain"],
    target: float | Float[Array, ""],
    longest: float = math.inf,
) -> StepSizeState:
    """Update step sizes, at most `longest`, after one transition from its acceptance statistic, per chain or over all chains."""
    count = state.count + 1
    error_sum = state.error_sum + target - acceptance
    log_step = state.shrinkage_point - error_sum * jnp.sqrt(count) / ((count + _T0) * _GAMMA)
    if longest < math.inf:
        log_step = jnp.minimum(log_step, math.log(longest))
    weight = count ** (-_KAPPA)
    average = weight * log_step + (1 - weight) * state.log_step_average
    return StepSizeState(log_step, average, error_sum, count, state.shrinkage_point)


def step_size_in_use(state: StepSizeState, is_adapting: Bool[Array, ""] | bool) -> Float[Array, "*chain"]:
    """Return the step size of the next transition, float64: the iterate while adapting, the average afterwards."""
    return jnp.where(is_adapting, jnp.exp(state.log_step), averaged_step_size(state))


def averaged_step_size(state: StepSizeState) -> Float[Array, "*chain"]:
    """Return the step size to keep, float64."""
    return jnp.exp(state.log_step_average)


def mean_over(statistic: Float[Array, " chain"], counts: Bool[Array, " chain"]) -> Float[Array, ""]:
    """Return the mean over the chains that count, () float64; 0 if none does.

    >>> float(mean_over(jnp.asarray([0.5, 0.0, 1.0]), jnp.asarray([True, False, True])))
    0.75
    """
    return jnp.sum(jnp.where(counts, statistic, 0.0)) / jnp.maximum(jnp.sum(counts), 1)
