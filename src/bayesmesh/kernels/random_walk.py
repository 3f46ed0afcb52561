"""Random-walk Metropolis with a normal proposal in the coordinates of the metric.

The accept step needs no gradients; they are used only to adapt the metric. If gradients are available, every other kernel
is faster in more than a few dimensions.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel, HamiltonianTuning
from bayesmesh.kernels.base import Statistic, Target
from bayesmesh.kernels.hamiltonian.trajectory import STATISTICS, HamiltonianInfo, HamiltonianState, accept, over_chains
from bayesmesh.kernels.options import RandomWalkOptions as Options


class RandomWalk(HamiltonianKernel[HamiltonianInfo]):
    """Random-walk Metropolis."""

    pretty_name = "Random-walk Metropolis"
    options: Options
    reference = "Metropolis et al. 1953; scaling: Roberts, Gelman and Gilks 1997"
    statistics = {k: STATISTICS[k] for k in ("lp", "log_likelihood", "accepted")} | {
        "acceptance_rate": Statistic("1", "Metropolis acceptance probability of the proposal."),
        "n_steps": Statistic("gradient", "Evaluations of the log density, each with its gradient."),
        "step_size": Statistic("metric", "Standard deviation of the proposal in the coordinates of the metric."),
    }

    def expected_gradients(self) -> float:
        """Return one evaluation per draw."""
        return 1.0

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Propose a point near the current one, and accept or reject it."""
        momentum = self.metric.draw_momentum(key, state.position, target.mask)
        noise, scale = self.metric.move(tuning.metric, momentum), jnp.broadcast_to(tuning.step_size, key.shape)
        position = jax.tree.map(lambda q, z: q + over_chains(scale.astype(q.dtype), q) * z, state.position, noise)
        proposal = HamiltonianState(position, *target.log_density(position), state.num_steps)
        log_ratio = (proposal.log_prior - state.log_prior) + (proposal.log_likelihood - state.log_likelihood)
        one = jnp.ones((), jnp.int32)
        return accept(key, log_ratio, proposal, state, momentum, one, tuning.step_size)
