"""Run the kernel `hmc` with fixed settings on a plain log density, without adaptation and without a store."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianInfo, HamiltonianState
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget

SEED = 20261121


def run_hmc(
    log_density: Callable[[jax.Array], jax.Array], start: jax.Array, keys: jax.Array, num_draws: int, step_size: float,
    num_leapfrog_steps: int,
) -> tuple[jax.Array, HamiltonianInfo]:  # fmt: skip
    """Return the states (draw, chain, coordinate) and the statistics (draw, chain) of all trajectories.

    Call it within `jax.jit`, which drops what the caller does not use.

    Args:
        log_density: log density of one chain's coordinates (coordinate,), in nats.
        start: first states (chain, coordinate).
        keys: one key for each chain (chain,).
        num_draws: trajectories of each chain.
        step_size: leapfrog step size, with an identity metric.
        num_leapfrog_steps: leapfrog steps of a trajectory.
    """
    kernel, target = Hmc(Options(num_leapfrog_steps=num_leapfrog_steps), 0), FunctionTarget(log_density)
    tuning = HamiltonianTuning(jnp.asarray(step_size, jnp.float64), (), ())

    def step(state: HamiltonianState, draw: jax.Array) -> tuple[HamiltonianState, tuple[jax.Array, HamiltonianInfo]]:
        state, info = kernel.step(jax.vmap(jax.random.fold_in, (0, None))(keys, draw), state, target, tuning)
        assert state.position.shared is not None
        return state, (state.position.shared, info)

    first = kernel.init(keys, Position(start, None), target)
    found: tuple[jax.Array, HamiltonianInfo] = jax.lax.scan(step, first, jnp.arange(num_draws))[1]
    return found
