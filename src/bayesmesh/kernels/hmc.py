"""Hamiltonian Monte Carlo with a fixed number of leapfrog steps and dual averaging of the step size.

With `metric: identity` this is the sampler of TensorFlow Probability's tutorial "Distributed inference with JAX": a fixed
trajectory length, and one step size for all chains, adapted during the first part of warmup towards an acceptance rate of
0.75. A fixed length can resonate with the target; `jitter` and `chees` avoid that.

`integrator: split` is exact in a normal. If this normal is close to the target, a step may be several times as long, and a
trajectory of length 1.57, a quarter of a period, ends in an independent draw.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bayesmesh.config.settings import Settings
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.adaptation.trajectory_length import halton
from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel, HamiltonianTuning, Warmup
from bayesmesh.kernels.base import COORDINATES, POSITION, Position, Target
from bayesmesh.kernels.hamiltonian.laplace import NormalAtMode, normal_of
from bayesmesh.kernels.hamiltonian.trajectory import (
    STATISTICS,
    HamiltonianInfo,
    HamiltonianState,
    SplitPoint,
    place_in_normal,
    run_split_trajectory,
    run_trajectory,
)
from bayesmesh.kernels.options import HmcOptions as Options


class Hmc(HamiltonianKernel[HamiltonianInfo]):
    """Fixed-length HMC."""

    pretty_name = "HMC, fixed length"
    options: Options
    reference = "Duane et al. 1987; Neal 2011; dual averaging: Hoffman and Gelman 2014"
    statistics = STATISTICS

    def __init__(self, options: Settings, num_warmup: int | jax.Array) -> None:
        super().__init__(options, num_warmup)
        if self._is_split and self.options.metric != "curvature":
            raise ConfigError(
                f"key 'kernel.integrator': split needs the normal at a mode, and metric is {self.options.metric}",
                "write metric: curvature, or use integrator: leapfrog",
            )

    @property
    def num_adaptive(self) -> int | Int[Array, ""]:
        """Number of iterations in the first `adaptation_fraction` of warmup."""
        count = self.options.adaptation_fraction * self.num_warmup
        return jnp.round(count).astype(jnp.int32) if isinstance(count, jax.Array) else round(count)

    def expected_gradients(self) -> float:
        """Return the number of leapfrog steps, or an upper bound on it from the initial step size."""
        most, length = self.options.num_leapfrog_steps, self.options.trajectory_length
        return float(most if length is None else min(most, math.ceil(length / self.options.initial_step_size)))

    def init(self, key: jax.Array, position: Position, target: Target) -> HamiltonianState:
        """Return the state at a position; needs one gradient and no randomness.

        Raises:
            ConfigError: trajectories are to be exact in a normal, but the target has none.
        """
        state = super().init(key, position, target)
        if not self._is_split:
            return state
        normal = _normal_of(target)
        return place_in_normal(state, self.metric, normal.curvature, _without_chain(normal.mean))

    def init_adaptation(self, state: HamiltonianState, target: Target) -> Warmup:
        """Return the adaptation before the first iteration; its `extra` is the mean of the normal, if there is one."""
        adaptation = super().init_adaptation(state, target)
        return adaptation._replace(extra=_without_chain(_normal_of(target).mean)) if self._is_split else adaptation

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Make one trajectory."""
        num_steps, step_size = self._plan(state, tuning)
        if self._is_split:
            normal = self.metric, tuning.metric, tuning.extra
            return run_split_trajectory(key, state, target, *normal, step_size, num_steps)
        return run_trajectory(key, state, target, self.metric, tuning.metric, step_size, num_steps)

    def _plan(self, state: HamiltonianState, tuning: HamiltonianTuning) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """Return the number and size of the steps of the next trajectory."""
        options, step_size = self.options, tuning.step_size
        num_steps = jnp.asarray(options.num_leapfrog_steps, jnp.int32)
        if (length := options.trajectory_length) is not None:
            num_steps = jnp.clip(jnp.ceil(length / step_size), 1, num_steps).astype(jnp.int32)
            step_size = jnp.minimum(step_size, length / num_steps)
        if options.jitter:
            step_size = step_size * (1 + options.jitter * (2 * halton(state.num_steps) - 1))
        return num_steps, step_size

    @property
    def _is_split(self) -> bool:
        return bool(self.options.integrator == "split")

    def extra_tuning(self, adaptation: Warmup, is_adapting: jax.Array | bool) -> Any:
        """Return the mean of the normal, if trajectories are exact in one."""
        return adaptation.extra

    def extra_axes(self) -> Any:
        """Return the axes of that mean."""
        return COORDINATES if self._is_split else super().extra_axes()

    def state_axes(self) -> HamiltonianState:
        """Return the axes of a state."""
        axes = super().state_axes()
        return axes._replace(split=SplitPoint(POSITION, POSITION)) if self._is_split else axes


def _normal_of(target: Target) -> NormalAtMode:
    return normal_of(target, "key 'kernel.integrator': split", "use integrator: leapfrog")


def _without_chain(position: Position) -> Position:
    return jax.tree.map(lambda x: x[0], position)
