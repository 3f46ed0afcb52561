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

from bayesmesh.reproduction.fixed_hmc import SEED, run_hmc

CHAINS, DIMENSION = 2, 2
"""Chains per device, and coordinates per state."""

STEP_SIZE, NUM_STEPS, WARMUP = 0.1, 10, 1000
"""Parameters of Hamiltonian Monte Carlo; the step size is fixed, so warmup only forgets the start."""


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
        self.run(0)
        return {"compile_s": compile_s, "device": jax.devices()[0].device_kind, "devices": jax.device_count()}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample and wait for the states, which are the same in every run."""
        self.states = jax.block_until_ready(self._run(self._keys))
        return {"shape": " ".join(map(str, self.states.shape))}


class Ours(_Chains):
    """The kernel `hmc` of this project, with a fixed step size.

    Args:
        saved: file for the states.
        step_size, num_steps: parameters of a trajectory.
    """

    def __init__(self, *, saved: str, step_size: float = STEP_SIZE, num_steps: int = NUM_STEPS) -> None:
        self._saved, self._step_size, self._num_steps = saved, step_size, num_steps

    def _sample(self, keys: jax.Array, num_draws: int) -> jax.Array:
        start, keys = jnp.zeros((CHAINS, DIMENSION)), jax.random.split(keys[0], CHAINS)
        settings = {"step_size": self._step_size, "num_leapfrog_steps": self._num_steps}
        return run_hmc(_log_density, start, keys, WARMUP + num_draws, **settings)[0][None, WARMUP:]

    def prepare(self, case: DrawsCase) -> dict[str, object]:
        """Compile, sample once and save the states."""
        facts = super().prepare(case)
        np.save(self._saved, np.asarray(self.states))
        return facts


class Tfp(_Chains):
    """TensorFlow Probability's sampler, as in the tutorial."""

    def _sample(self, keys: jax.Array, num_draws: int) -> jax.Array:
        kernel = tfp.mcmc.HamiltonianMonteCarlo(jax.vmap(_log_density), STEP_SIZE, NUM_STEPS)
        states = tfp.mcmc.sample_chain(
            num_draws, jnp.zeros((CHAINS, DIMENSION)), kernel=kernel, num_burnin_steps=WARMUP, trace_fn=None, seed=keys[0]
        )  # fmt: skip
        return states[None]
