"""ChEES-HMC: many chains in lock step share a step size, a metric and a jittered trajectory length.

The trajectory length climbs the ChEES criterion, which compares chains with each other, so at least two chains are
needed and sixteen are better. Lengths are jittered by a Halton sequence, which avoids resonance with the target. Every
chain takes the same number of steps, so on an accelerator none waits for a deeper tree.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bayesmesh.kernels.adaptation.step_size import averaged_step_size, mean_over
from bayesmesh.kernels.adaptation.trajectory_length import LengthState, halton, init_length, update_length
from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel, HamiltonianTuning, Warmup
from bayesmesh.kernels.base import Target
from bayesmesh.kernels.hamiltonian.trajectory import (
    RESTARTED,
    STATISTICS,
    HamiltonianInfo,
    HamiltonianState,
    run_trajectory,
)
from bayesmesh.kernels.options import CheesOptions as Options

FIRST_LENGTH = 1.0
"""Longest trajectory after the early phase, in standard deviations as estimated by the metric. The criterion has a
maximum at every half period of a normal; searching from below finds the first."""


class Chees(HamiltonianKernel[HamiltonianInfo]):
    """ChEES-HMC; the kernel's own tuning is the longest trajectory, () float64, in units of step size."""

    pretty_name = "ChEES-HMC"
    options: Options
    reference = "Hoffman, Radul and Sountsov 2021, AISTATS"
    min_chains = 2
    has_own_steps = True
    restarts_chains = True
    statistics = STATISTICS | RESTARTED

    def expected_gradients(self) -> float:
        """Return a guess: half of the initial longest trajectory, doubled by adaptation."""
        return float(self.options.initial_leapfrog_steps)

    def most_gradients(self) -> float:
        """Return those of the longest trajectory."""
        return float(self.options.max_leapfrog_steps)

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Make one trajectory of jittered length."""
        num_steps = self.num_leapfrog_steps(state, tuning)
        return run_trajectory(key, state, target, self.metric, tuning.metric, tuning.step_size, num_steps)

    def num_leapfrog_steps(self, state: HamiltonianState, tuning: HamiltonianTuning) -> Int[Array, ""]:
        """Return the jittered length of the next trajectory, () int32."""
        length = halton(state.num_steps) * tuning.extra
        num_steps = jnp.clip(jnp.ceil(length / jnp.median(tuning.step_size)), 1, self.options.max_leapfrog_steps)
        return num_steps.astype(jnp.int32)

    def acceptance_statistic(self, info: HamiltonianInfo, counts: Bool[Array, " chain"]) -> Float[Array, ""]:
        """Return the harmonic mean of acceptance over the chains that count."""
        inverse = mean_over(1 / jnp.maximum(info.acceptance_rate, 1e-3), counts)
        return 1 / jnp.maximum(inverse, 1.0)

    def init_extra(self) -> LengthState:
        """Return the initial state of the search for a length."""
        return init_length(self.options.initial_step_size * self.options.initial_leapfrog_steps)

    def adapt_extra(
        self, adaptation: Warmup, before: HamiltonianState, info: HamiltonianInfo, counts: Bool[Array, " chain"]
    ) -> LengthState:
        """Make one ascent step on the criterion; keep the initial number of steps in the early phase, and restart the search after it."""
        jitter = halton(before.num_steps)
        assert info.trajectory is not None  # set by `run_trajectory`
        counted = info.trajectory._replace(acceptance_rate=jnp.where(counts, info.acceptance_rate, jnp.nan))
        length = update_length(adaptation.extra, before.position, counted, self.metric, adaptation.metric, jitter)
        num_steps, num_early = before.num_steps + 1, self.num_early()
        step_size, average = jnp.median(info.step_size), jnp.median(averaged_step_size(adaptation.step_size))
        few = self.options.initial_leapfrog_steps * step_size
        early = init_length(jnp.where(num_steps == num_early, FIRST_LENGTH, few))
        is_early = num_steps <= num_early
        length = jax.tree.map(lambda e, later: jnp.where(is_early, e, later), early, length)
        # At the cap, or at one step, the search has no effect. The step size in use fluctuates during adaptation, and
        # bounds that followed it down would cut the length permanently.
        shortest = jnp.log(jnp.minimum(step_size, average))
        longest = jnp.log(jnp.maximum(step_size, average) * self.options.max_leapfrog_steps)
        return length._replace(log_length=jnp.clip(length.log_length, shortest, longest))

    def extra_tuning(self, adaptation: Warmup, is_adapting: Bool[Array, ""] | bool) -> Float[Array, ""]:
        """Return the longest trajectory: the one in use while adapting, its average afterwards."""
        length: LengthState = adaptation.extra
        return jnp.exp(jnp.where(is_adapting, length.log_length, length.log_average))
