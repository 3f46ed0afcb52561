"""The Metropolis-adjusted Langevin algorithm: one leapfrog step from fresh momentum.

A leapfrog step of size e is the Langevin proposal with variance e**2, and the decrease in energy is the log of the
Metropolis ratio (Neal 2011, section 5.5.2). A draw costs one gradient; trajectories of several steps travel farther per
gradient.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Key

from bayesmesh.kernels.adaptation.warmup import HamiltonianKernel, HamiltonianTuning
from bayesmesh.kernels.base import Target
from bayesmesh.kernels.hamiltonian.trajectory import STATISTICS, HamiltonianInfo, HamiltonianState, run_trajectory
from bayesmesh.kernels.options import MalaOptions as Options


class Mala(HamiltonianKernel[HamiltonianInfo]):
    """The Metropolis-adjusted Langevin algorithm, preconditioned by the metric."""

    pretty_name = "MALA"
    options: Options
    reference = "Roberts and Tweedie 1996; scaling: Roberts and Rosenthal 1998"
    statistics = STATISTICS

    def expected_gradients(self) -> float:
        """Return one gradient per draw."""
        return 1.0

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Make one leapfrog step, and accept or reject it."""
        one = jnp.ones((), jnp.int32)
        return run_trajectory(key, state, target, self.metric, tuning.metric, tuning.step_size, one)
