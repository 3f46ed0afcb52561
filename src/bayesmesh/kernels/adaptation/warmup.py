"""The warmup of all Hamiltonian kernels: windows, step size and metric.

Dual averaging adapts the step size at every iteration. An adaptive metric is estimated from the points of a window and
replaced when the window closes; the search for the step size then restarts from its present value.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from bayesmesh.config.settings import Settings
from bayesmesh.kernels.adaptation.step_size import (
    StepSizeState,
    init_step_size,
    mean_over_finite,
    step_size_in_use,
    update_step_size,
)
from bayesmesh.kernels.adaptation.windows import is_window_end
from bayesmesh.kernels.base import CHAIN, POSITION, SCALAR, Kernel, Position, Target
from bayesmesh.kernels.hamiltonian.metrics import load_metric
from bayesmesh.kernels.hamiltonian.metrics.base import Metric
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState, init_state

_RESTART_SHRINKAGE = 2.0
"""Shrinkage of the step size after a window; it is already close, so larger values would waste gradients."""


class Warmup(NamedTuple):
    """Adaptation of a Hamiltonian kernel.

    Attributes:
        step_size: the state of dual averaging.
        metric: the metric's data.
        estimate: estimate of the next metric, from the present window.
        extra: further adaptation of a kernel; empty if there is none.
    """

    step_size: StepSizeState
    metric: Any
    estimate: Any
    extra: Any


class HamiltonianTuning(NamedTuple):
    """Tuning of a step: () float64 step size, the metric's data, and a kernel's own tuning."""

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
    """A kernel that moves along Hamiltonian trajectories; subclasses add `step` and optional further adaptation."""

    def __init__(self, options: Settings, num_warmup: int | jax.Array) -> None:
        super().__init__(options, num_warmup)
        self.metric: Metric[Any, Any] = load_metric(self.options.metric, self.options)

    def init(self, key: jax.Array, position: Position, target: Target) -> HamiltonianState:
        """Return the state at a position; needs one gradient and no randomness."""
        del key
        return init_state(position, target)

    def init_adaptation(self, state: HamiltonianState, target: Target) -> Warmup:
        """Return the adaptation before the first iteration, with a metric from the gradients at the start."""
        step_size = init_step_size(self.options.initial_step_size)
        data = self.metric.start(state.gradient, target)
        return Warmup(step_size, data, self.metric.init_estimate(state.position), self.init_extra())

    def adapt(
        self, adaptation: Warmup, before: HamiltonianState, after: HamiltonianState, info: Info, target: Target
    ) -> Warmup:
        """Adapt after one transition."""
        del target
        acceptance = self.acceptance_statistic(info)
        step_size = update_step_size(adaptation.step_size, acceptance, self.options.target_acceptance)
        adapted = adaptation._replace(step_size=step_size, extra=self.adapt_extra(adaptation, before, info))
        if not self.metric.is_adaptive:
            return adapted
        estimate = self.metric.update_estimate(adaptation.estimate, after.position, after.gradient)
        closes = is_window_end(after.num_steps, self.num_adaptive)
        return jax.lax.cond(closes, self._close_window, lambda s, _: s, adapted._replace(estimate=estimate), after)

    def _close_window(self, adaptation: Warmup, after: HamiltonianState) -> Warmup:
        return adaptation._replace(
            metric=self.metric.estimate(adaptation.estimate),
            step_size=init_step_size(jnp.exp(adaptation.step_size.log_step), _RESTART_SHRINKAGE),
            estimate=self.metric.init_estimate(after.position),
            extra=self.restart_extra(adaptation.extra, _RESTART_SHRINKAGE),
        )

    def tuning(self, adaptation: Warmup, is_adapting: jax.Array | bool) -> HamiltonianTuning:
        """Return the step size in use while adapting, its average afterwards, with the metric."""
        step_size = step_size_in_use(adaptation.step_size, is_adapting)
        return HamiltonianTuning(step_size, adaptation.metric, self.extra_tuning(adaptation, is_adapting))

    def acceptance_statistic(self, info: Info) -> jax.Array:
        """Return the acceptance over the chains to which the step size adapts, () float64."""
        return mean_over_finite(info.acceptance_rate, info.lp)

    def init_extra(self) -> Any:
        """Return the kernel's further adaptation before the first iteration."""
        return ()

    def adapt_extra(self, adaptation: Warmup, before: HamiltonianState, info: Info) -> Any:
        """Return `adaptation.extra` after one transition."""
        del before, info
        return adaptation.extra

    def restart_extra(self, extra: Any, shrinkage: float) -> Any:
        """Return `Warmup.extra` after a change of the metric; `shrinkage` is that of restarted step sizes."""
        del shrinkage
        return extra

    def extra_tuning(self, adaptation: Warmup, is_adapting: jax.Array | bool) -> Any:
        """Return the tuning of a step from `adaptation.extra`."""
        del adaptation, is_adapting
        return ()

    def extra_axes(self) -> Any:
        """Return the `Axes` of every array of `Warmup.extra`; by default all are scalars that the devices share."""
        return jax.tree.map(lambda _: SCALAR, jax.eval_shape(self.init_extra))

    def state_axes(self) -> HamiltonianState:
        """Return the axes of a state."""
        return HamiltonianState(POSITION, CHAIN, CHAIN, POSITION, SCALAR)  # type: ignore[arg-type]  # axes in the places of arrays

    def adaptation_axes(self) -> Warmup:
        """Return the axes of an adaptation."""
        step_size: StepSizeState = jax.tree.map(lambda _: SCALAR, jax.eval_shape(init_step_size, 1.0))
        return Warmup(step_size, self.metric.data_axes(), self.metric.estimate_axes(), self.extra_axes())
