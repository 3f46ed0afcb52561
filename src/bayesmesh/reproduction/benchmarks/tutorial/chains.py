"""Independent chains: each device runs its own chains without communication."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget

__all__ = ["Ours", "Tfp", "on_devices"]

CHAINS, DIMENSION = 2, 2
"""Chains per device, and coordinates per state."""

STEP_SIZE, NUM_STEPS, WARMUP = 0.1, 10, 1000
"""Parameters of Hamiltonian Monte Carlo; the step size is fixed, so warmup only forgets the start."""

SEED = 20261121


def on_devices(function: Callable[..., object], num_outputs: int = 1) -> jax.stages.Wrapped:
    """Compile a function that every device runs on its part of the leading axis of all arguments."""
    mesh = jax.make_mesh((jax.device_count(),), ("device",), axis_types=(AxisType.Auto,))
    out = P("device") if num_outputs == 1 else (P("device"),) * num_outputs
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("device"), out_specs=out, check_vma=False))


def _log_density(x: jax.Array) -> jax.Array:
    """Log density of a standard normal, nats; `x` is (coordinate,)."""
    return jnp.sum(-0.5 * x**2 - 0.5 * jnp.log(2 * jnp.pi))


class DrawsCase(TypedDict):
    """Draws of each chain, or trajectories."""

    draws: int


class _Chains:
    """A contender: compiles in `prepare`, samples in `run`."""

    def _sample(self, keys: jax.Array, num_draws: int) -> jax.Array:
        """Return states (1, draw, chain, coordinate) of one device from its keys (1,)."""
        raise NotImplementedError

    def prepare(self, case: DrawsCase) -> dict[str, object]:
        """Compile, and sample once."""
        begin = time.perf_counter()
        self._keys = jax.random.split(jax.random.key(SEED), jax.device_count())
        self._run = on_devices(lambda keys: self._sample(keys, case["draws"])).lower(self._keys).compile()
        compile_s = time.perf_counter() - begin
        jax.block_until_ready(self._run(self._keys))
        return {"compile_s": compile_s, "device": jax.devices()[0].device_kind, "devices": jax.device_count()}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample and wait for the states."""
        del repeat
        self.states = jax.block_until_ready(self._run(self._keys))
        return {"shape": " ".join(map(str, self.states.shape))}


class Ours(_Chains):
    """The kernel `hmc` of this project, with a fixed step size.

    Args:
        saved: file for the states; empty for none.
        step_size, num_steps: parameters of a trajectory.
    """

    def __init__(self, *, saved: str = "", step_size: float = STEP_SIZE, num_steps: int = NUM_STEPS) -> None:
        self._saved, self._step_size, self._num_steps = saved, step_size, num_steps

    def _sample(self, keys: jax.Array, num_draws: int) -> jax.Array:
        kernel = Hmc(Options(num_leapfrog_steps=self._num_steps, initial_step_size=self._step_size), WARMUP)
        tuning = HamiltonianTuning(jnp.asarray(self._step_size, jnp.float64), (), ())
        chain_keys = jax.random.split(keys[0], CHAINS)

        target = FunctionTarget(_log_density)

        def step(state: HamiltonianState, draw: jax.Array) -> tuple[HamiltonianState, jax.Array]:
            key = jax.vmap(lambda k: jax.random.fold_in(k, draw))(chain_keys)
            state, _ = kernel.step(key, state, target, tuning)
            assert state.position.shared is not None
            return state, state.position.shared

        state = kernel.init(chain_keys, Position(jnp.zeros((CHAINS, DIMENSION)), None), target)
        _, states = jax.lax.scan(step, state, jnp.arange(WARMUP + num_draws))
        return states[None, WARMUP:]

    def run(self, repeat: int) -> dict[str, object]:
        """Sample; saving the states is not timed."""
        begin = time.perf_counter()
        facts = super().run(repeat)
        seconds = time.perf_counter() - begin
        if self._saved:
            np.save(self._saved, np.asarray(self.states))
        return {**facts, "seconds": seconds}


class Tfp(_Chains):
    """TensorFlow Probability's sampler, as in the tutorial."""

    def _sample(self, keys: jax.Array, num_draws: int) -> jax.Array:
        kernel = tfp.mcmc.HamiltonianMonteCarlo(jax.vmap(_log_density), STEP_SIZE, NUM_STEPS)
        states = tfp.mcmc.sample_chain(
            num_draws,
            jnp.zeros((CHAINS, DIMENSION)),
            kernel=kernel,
            num_burnin_steps=WARMUP,
            trace_fn=None,
            seed=keys[0],
        )
        return states[None]
