"""Replica exchange between two temperatures: one hot chain for each chain of the target, and swaps between them.

The hot chain targets the prior times the likelihood raised to a power below 1, and crosses between modes that the cold
chain cannot leave. At every iteration a pair first proposes to swap positions; then each chain makes an HMC trajectory at
its own temperature.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from bayesmesh.kernels.adaptation.step_size import (
    StepSizeState,
    init_step_size,
    mean_over,
    step_size_in_use,
    update_step_size,
)
from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel, HamiltonianTuning, Warmup
from bayesmesh.kernels.base import Position, Statistic, Target, first_chains
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.kernels.hamiltonian.trajectory import (
    STATISTICS,
    HamiltonianState,
    init_state,
    over_chains,
    run_trajectory,
)
from bayesmesh.kernels.options import ReplicaExchangeOptions as Options
from bayesmesh.kernels.targets import TemperedTarget


class ExchangeInfo(NamedTuple):
    """Info of a step for diagnostics and adaptation; `ReplicaExchange.statistics` lists the recorded fields.

    Attributes:
        acceptance_rate, energy, lp, log_likelihood: (cold chain,) float64.
        accepted, diverging, swapped: (cold chain,) bool.
        n_steps: () int32. step_size: () float64, of the cold chains.
        hot_acceptance_rate, hot_lp: (hot chain,) float64, of the trajectories of the hot chains; not recorded.
    """

    acceptance_rate: jax.Array
    accepted: jax.Array
    diverging: jax.Array
    energy: jax.Array
    lp: jax.Array
    log_likelihood: jax.Array
    swapped: jax.Array
    n_steps: jax.Array
    step_size: jax.Array
    hot_acceptance_rate: jax.Array
    hot_lp: jax.Array


class ReplicaExchange(HamiltonianKernel[ExchangeInfo]):
    """Two-temperature replica exchange of HMC chains; the first half of the chains is cold and reported."""

    pretty_name = "Replica exchange, two temperatures"
    options: Options
    reference = "Swendsen and Wang 1986; Geyer 1991"
    min_chains = 2
    chain_multiple = 2
    interacts = True
    statistics = STATISTICS | {
        "swapped": Statistic("1", "Whether the chain took the position of its hot partner."),
        "n_steps": Statistic("gradient", "Gradients of the transition, the one after a swap included."),
    }

    def num_chains_reported(self, num_chains: int) -> int:
        """Return half of the chains, the cold ones."""
        return num_chains // 2

    def expected_gradients(self) -> float:
        """Return the leapfrog steps, and one gradient after the swap."""
        return float(self.options.num_leapfrog_steps) + 1

    def _tempered(self, target: Target, num_chains: int) -> TemperedTarget:
        half = jnp.ones(num_chains // 2, jnp.float64)
        return TemperedTarget(target, jnp.concatenate([half, half * self.options.inverse_temperature]))

    def init(self, key: Key[Array, " chain"], position: Position, target: Target) -> HamiltonianState:
        """Return the state at a position, each half at its own temperature."""
        return init_state(position, self._tempered(target, len(key)))

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, ExchangeInfo]:
        """Propose a swap for every pair, and make one trajectory with every chain."""
        num_cold = len(key) // 2
        tempered = self._tempered(target, len(key))
        key_swap, key_move = (fold(key, i) for i in range(2))
        swapped = self._swaps(key_swap[:num_cold], state, tempered)
        position = jax.tree.map(
            lambda x: jnp.where(over_chains(jnp.tile(swapped, 2), x), jnp.roll(x, num_cold, axis=0), x), state.position
        )
        at = HamiltonianState(position, *tempered.log_density(position), state.num_steps)
        step_size = jnp.repeat(jnp.stack([tuning.step_size, tuning.extra]), num_cold, total_repeat_length=len(key))
        num_steps = jnp.asarray(self.options.num_leapfrog_steps, jnp.int32)
        after, moved = run_trajectory(key_move, at, tempered, self.metric, tuning.metric, step_size, num_steps)
        cold = {name: first_chains(getattr(moved, name), num_cold) for name in STATISTICS}
        of_pair = {"swapped": swapped, "n_steps": num_steps + 1, "step_size": tuning.step_size}
        hot = {"hot_acceptance_rate": moved.acceptance_rate[num_cold:], "hot_lp": moved.lp[num_cold:]}
        return after, ExchangeInfo(**cold | of_pair | hot)

    def _swaps(
        self, key: Key[Array, " chain"], state: HamiltonianState, tempered: TemperedTarget
    ) -> Bool[Array, " cold"]:
        """Return which pairs swap, (cold chain,): Metropolis on the product of both targets."""
        log_likelihood = state.log_likelihood / tempered.inverse_temperature
        cold, hot = jnp.split(log_likelihood, 2)
        log_ratio = (1 - self.options.inverse_temperature) * (hot - cold)
        log_uniform = jnp.log(jax.vmap(lambda k: jax.random.uniform(k, (), jnp.float64))(key))
        return log_uniform < jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)

    def init_adaptation(self, state: HamiltonianState, target: Target) -> Warmup:
        """Return the adaptation before the first iteration; the metric is that of the cold chains."""
        return super().init_adaptation(_cold(state), target)

    def adapt(
        self, adaptation: Warmup, before: HamiltonianState, after: HamiltonianState, info: ExchangeInfo, target: Target
    ) -> Warmup:
        """Adapt after one transition; the metric adapts to the cold chains only."""
        return super().adapt(adaptation, before, _cold(after), info, target)

    def init_extra(self) -> StepSizeState:
        """Return the initial state of the search for the step size of the hot chains."""
        return init_step_size(self.options.initial_step_size)

    def adapt_extra(
        self, adaptation: Warmup, before: HamiltonianState, info: ExchangeInfo, counts: Bool[Array, " chain"]
    ) -> StepSizeState:
        """Adapt the step size of the hot chains."""
        acceptance = mean_over(info.hot_acceptance_rate, jnp.isfinite(info.hot_lp))
        return update_step_size(adaptation.extra, acceptance, self.options.target_acceptance)

    def restart_extra(self, extra: StepSizeState, shrinkage: float) -> StepSizeState:
        """Restart the search for the step size of the hot chains, like that of the cold ones."""
        return init_step_size(jnp.exp(extra.log_step), shrinkage)

    def extra_tuning(self, adaptation: Warmup, is_adapting: Bool[Array, ""] | bool) -> Float[Array, ""]:
        """Return the step size of the hot chains."""
        return step_size_in_use(adaptation.extra, is_adapting)


def _cold(state: HamiltonianState) -> HamiltonianState:
    return first_chains(state, len(state.log_prior) // 2)
