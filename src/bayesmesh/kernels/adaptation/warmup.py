"""The warmup of all Hamiltonian kernels: windows, step size and metric.

Dual averaging adapts the step size at every iteration. An adaptive metric is estimated from the points of a window and
replaced when the window closes; the search for the step size then restarts from its present value.

In the early phase each chain of a kernel with `has_own_steps` searches for its own step size, so that every chain travels to
the typical set as fast as its surroundings permit. Afterwards all share the median. Such a kernel does not adapt to chains
far below the others or to chains that do not move: see `near_others` and `is_moving`. A kernel with `restarts_chains` moves chains in a
mode of negligible mass to the positions of others: see `lost_chains`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from bayesmesh.config.settings import Settings
from bayesmesh.kernels.adaptation.lost_chains import (
    FEWEST_DRAWS,
    SEEN_AXES,
    Seen,
    choose_sources,
    init_seen,
    is_moving,
    near_others,
    update_running,
    update_seen,
)
from bayesmesh.kernels.adaptation.step_size import (
    StepSizeState,
    averaged_step_size,
    init_step_size,
    mean_over,
    step_size_in_use,
    update_step_size,
)
from bayesmesh.kernels.base import CHAIN, POSITION, SCALAR, Kernel, Position, Target, keep_computed
from bayesmesh.kernels.hamiltonian.metrics import load_metric
from bayesmesh.kernels.hamiltonian.metrics.base import Metric, check_arrays, check_maps
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState, init_state, over_chains

EARLY_FRACTION = 0.2
"""End of the early phase, as a fraction of warmup; also the end of a window."""

_FRACTIONS = (0.05, 0.1, 0.2, 0.35, 0.55, 0.8)
"""Ends of windows, as fractions of warmup; the last fifth adapts only the step size."""

_SETTLED = _FRACTIONS[_FRACTIONS.index(EARLY_FRACTION) + 1]
"""End of the first window after the early phase, as a fraction of warmup."""

_RESTART_SHRINKAGE = 2.0
"""Shrinkage of the step size after a window; it is already close, so larger values would waste gradients."""


class Warmup(NamedTuple):
    """Adaptation of a Hamiltonian kernel.

    Attributes:
        step_size: the state of dual averaging; with `has_own_steps`, one search per chain, all equal after the early
            phase.
        acceptance: (chain,) float64, running mean of each chain's acceptance; () and 1 without `has_own_steps`.
        metric: the metric's data.
        estimate: running estimate of the next metric, from the current window.
        extra: further adaptation of the kernel; empty if there is none.
        seen: statistics by which lost chains are found; empty if no chain restarts.
    """

    step_size: StepSizeState
    acceptance: jax.Array
    metric: Any
    estimate: Any
    extra: Any
    seen: Seen | tuple[()] = ()


class HamiltonianTuning(NamedTuple):
    """Tuning of a step: the step size, float64, () or with `has_own_steps` (chain,); the metric's data; the kernel's own tuning."""

    step_size: jax.Array
    metric: Any
    extra: Any


class StepInfo(Protocol):
    """Fields of a step that the common warmup reads: (chain,) float64 acceptance rate and log density."""

    @property
    def acceptance_rate(self) -> jax.Array: ...
    @property
    def lp(self) -> jax.Array: ...


class HamiltonianKernel[Info: StepInfo](Kernel[HamiltonianState, HamiltonianTuning, Info, Warmup]):
    """A kernel that moves along Hamiltonian trajectories; subclasses add `step` and optional further adaptation.

    Class attributes:
        has_own_steps: whether chains have step sizes of their own in the early phase of warmup, and are left out of
            pooled adaptation while they are lost or stuck.

    Attributes:
        longest_step: the largest step size to which warmup adapts.
    """

    has_own_steps: ClassVar[bool] = False
    longest_step: float = math.inf

    def __init__(self, options: Settings, num_warmup: int | jax.Array) -> None:
        super().__init__(options, num_warmup)
        self.metric: Metric[Any, Any] = load_metric(self.options.metric, self.options)

    def init(self, key: jax.Array, position: Position, target: Target) -> HamiltonianState:
        """Return the state at a position; needs one gradient and no randomness."""
        return init_state(position, target)

    def num_iterations(self, state: HamiltonianState) -> jax.Array:
        """Return the number of iterations, () int32."""
        return state.num_steps

    def at_iteration(self, state: HamiltonianState, number: jax.Array) -> HamiltonianState:
        """Return the state with its number of iterations, () int32."""
        return state._replace(num_steps=number)

    def init_adaptation(self, state: HamiltonianState, target: Target) -> Warmup:
        """Return the adaptation before the first iteration, with a metric from the gradients at the start."""
        ones = jnp.ones(state.log_prior.shape if self.has_own_steps else ())
        step_size = init_step_size(self.options.initial_step_size * ones)
        data = self.metric.start(state.gradient, target)
        check_maps(self.metric, data, state.position)
        seen = init_seen(state.position) if self._watches_chains else ()
        return Warmup(step_size, ones, data, self.metric.init_estimate(state.position), self.init_extra(), seen)

    def adopt(self, adaptation: Warmup, relative: Warmup) -> Warmup:
        """Return the adaptation with the step size and the metric of other chains; the rest begins anew."""
        step_size = init_step_size(averaged_step_size(relative.step_size), _RESTART_SHRINKAGE)
        return adaptation._replace(step_size=step_size, metric=relative.metric)

    @property
    def _watches_chains(self) -> bool:
        return self.restarts_chains and self.options.restart_lost_chains

    def num_early(self) -> jax.Array:
        """Return the number of iterations of the early phase, () int32; 0 without step sizes of their own."""
        return early_end(self.num_adaptive) * self.has_own_steps

    def adapt(
        self, adaptation: Warmup, before: HamiltonianState, after: HamiltonianState, info: Info, target: Target
    ) -> Warmup:
        """Adapt after one transition."""
        running, is_near = adaptation.acceptance, jnp.isfinite(info.lp)
        counts = is_near
        if self.has_own_steps:
            running, is_near = update_running(running, info.acceptance_rate), near_others(info.lp)
            counts = is_near & is_moving(running)
        is_near, counts = keep_computed((is_near, counts))
        step_size = self._adapt_step_size(adaptation, after, info, counts)
        extra = self.adapt_extra(adaptation, before, info, counts)
        seen = self._update_seen(adaptation.seen, after, target)
        adapted = adaptation._replace(step_size=step_size, acceptance=running, extra=extra, seen=seen)
        if not self.metric.is_adaptive:
            return adapted
        # A metric leaves out chains whose gradient is not finite.
        gradient = jax.tree.map(lambda g: jnp.where(over_chains(is_near, g), g, jnp.nan), after.gradient)
        estimate = self.metric.update_estimate(adaptation.estimate, after.position, gradient)
        remedy = "return the arrays that init_estimate() returns: as many, with their shapes and dtypes"
        check_arrays(self.metric, "update_estimate", estimate, adaptation.estimate, remedy)
        closes = is_window_end(after.num_steps, self.num_adaptive)
        return jax.lax.cond(closes, self._close_window, lambda s, _: s, adapted._replace(estimate=estimate), after)

    def _update_seen(self, seen: Seen | tuple[()], after: HamiltonianState, target: Target) -> Seen | tuple[()]:
        """Add an iteration to the window's statistics; at the end of a window, reset them and choose where each chain continues."""
        if not isinstance(seen, Seen):
            return seen
        seen = update_seen(seen, after.log_prior + after.log_likelihood, after.position, after.gradient)

        def begin(seen: Seen) -> Seen:
            is_judged = is_restart(after.num_steps, self.num_adaptive) & (seen.count >= FEWEST_DRAWS)
            source = jnp.where(is_judged, choose_sources(seen, target.mask), seen.source)
            return init_seen(after.position)._replace(source=source)

        closes = is_window_end(after.num_steps, self.num_adaptive)
        return jax.lax.cond(closes, begin, lambda seen: seen, seen)

    def restart(self, adaptation: Warmup, state: HamiltonianState, info: Info) -> tuple[HamiltonianState, Info]:
        """Return the chains, with those in a mode of negligible mass moved to the positions of others."""
        if not isinstance(adaptation.seen, Seen):
            return state, info
        source, said = adaptation.seen.source, cast(Any, info)
        restarted = source != jnp.arange(len(source), dtype=source.dtype)

        def take(state: HamiltonianState) -> HamiltonianState:
            return jax.tree.map(lambda x: x[source] if x.ndim else x, state)

        return jax.lax.cond(restarted.any(), take, lambda state: state, state), said._replace(restarted=restarted)

    def _adapt_step_size(
        self, adaptation: Warmup, after: HamiltonianState, info: Info, counts: jax.Array
    ) -> StepSizeState:
        target = self.target_acceptance(adaptation.extra)
        acceptance = self.acceptance_statistic(info, counts)
        if not self.has_own_steps:
            return update_step_size(adaptation.step_size, acceptance, target, self.longest_step)
        count, num_early = after.num_steps, self.num_early()
        own = jnp.where(jnp.isfinite(info.acceptance_rate), info.acceptance_rate, 0.0)
        acceptance = jnp.where(count <= num_early, own, acceptance)
        state = update_step_size(adaptation.step_size, acceptance, target, self.longest_step)
        common = jnp.broadcast_to(jnp.exp(jnp.median(state.log_step_average)), counts.shape)
        pooled = init_step_size(common, _RESTART_SHRINKAGE)
        return jax.tree.map(lambda new, old: jnp.where(count == num_early, new, old), pooled, state)

    def _close_window(self, adaptation: Warmup, after: HamiltonianState) -> Warmup:
        learnt = self.metric.estimate(adaptation.estimate)
        remedy = "return the arrays that init() and start() return: as many, with their shapes and dtypes"
        check_arrays(self.metric, "estimate", learnt, adaptation.metric, remedy)
        # Non-finite numbers would break every chain: keep the metric until a window gives a better one.
        is_finite = jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(learnt)]).all()
        metric = jax.lax.cond(is_finite, lambda new, old: new, lambda new, old: old, learnt, adaptation.metric)
        return adaptation._replace(
            metric=metric,
            step_size=init_step_size(jnp.exp(adaptation.step_size.log_step), _RESTART_SHRINKAGE),
            estimate=self.metric.init_estimate(after.position),
            extra=self.restart_extra(adaptation.extra, _RESTART_SHRINKAGE),
        )

    def tuning(self, adaptation: Warmup, is_adapting: jax.Array | bool) -> HamiltonianTuning:
        """Return the step size in use while adapting, or its average afterwards, with the metric."""
        step_size = step_size_in_use(adaptation.step_size, is_adapting)
        return HamiltonianTuning(step_size, adaptation.metric, self.extra_tuning(adaptation, is_adapting))

    def acceptance_statistic(self, info: Info, counts: jax.Array) -> jax.Array:
        """Return the acceptance to which the common step size adapts, () float64, over the chains that count."""
        return mean_over(info.acceptance_rate, counts)

    def target_acceptance(self, extra: Any) -> float | jax.Array:
        """Return the acceptance that the step size is adapted to, () float64: the option, unless `extra` says otherwise."""
        return cast(float, self.options.target_acceptance)

    def init_extra(self) -> Any:
        """Return the kernel's further adaptation before the first iteration."""
        return ()

    def adapt_extra(self, adaptation: Warmup, before: HamiltonianState, info: Info, counts: jax.Array) -> Any:
        """Return `adaptation.extra` after one transition; `counts` says which chains count, (chain,) bool."""
        return adaptation.extra

    def restart_extra(self, extra: Any, shrinkage: float) -> Any:
        """Return `Warmup.extra` after a change of the metric; `shrinkage` is that of restarted step sizes."""
        return extra

    def extra_tuning(self, adaptation: Warmup, is_adapting: jax.Array | bool) -> Any:
        """Return the tuning of a step from `adaptation.extra`."""
        return ()

    def extra_axes(self) -> Any:
        """Return the `Axes` of every array of `Warmup.extra`; by default all are scalars that the devices share."""
        return jax.tree.map(lambda _: SCALAR, jax.eval_shape(self.init_extra))

    def state_axes(self) -> HamiltonianState:
        """Return the axes of a state."""
        return HamiltonianState(POSITION, CHAIN, CHAIN, POSITION, SCALAR)  # type: ignore[arg-type]  # axes stand in for arrays

    def adaptation_axes(self) -> Warmup:
        """Return the axes of an adaptation."""
        axes: Any = CHAIN if self.has_own_steps else SCALAR  # stands in for an array
        step_size: StepSizeState = jax.tree.map(lambda _: axes, jax.eval_shape(init_step_size, 1.0))
        seen = SEEN_AXES if self._watches_chains else ()
        return Warmup(step_size, axes, self.metric.data_axes(), self.metric.estimate_axes(), self.extra_axes(), seen)


def window_ends(num_warmup: int | Int[Array, ""]) -> Int[Array, " window"]:
    """Return the iteration counts at which windows close, int32, non-decreasing; counts below 2 close none.

    >>> window_ends(100).tolist()
    [5, 10, 20, 35, 55, 80]
    """
    return jnp.round(jnp.asarray(_FRACTIONS) * num_warmup).astype(jnp.int32)


def readapted_begin(num_warmup: int | Int[Array, ""]) -> Int[Array, ""]:
    """Return the iteration of warmup, () int32, at which chains that continue others begin.

    >>> int(readapted_begin(100))
    80
    """
    return window_ends(num_warmup)[-1]


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
