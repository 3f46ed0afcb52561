"""What eight devices compute: independent chains, sums over devices, and densities of distributions in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from tensorflow_probability.substrates import jax as tfp

from bayesmesh_reproduction.benchmarks.worker import timed
from bayesmesh_reproduction.hmc import SEED, run_hmc

tfd, tfed = tfp.distributions, tfp.experimental.distribute

SCALE = 2.0
"""Standard deviation of the sharded part."""

CHAINS, DIMENSION = 2, 2
"""Chains per device, and coordinates per state."""

STEP_SIZE, NUM_STEPS, WARMUP = 0.1, 10, 1000
"""Parameters of Hamiltonian Monte Carlo; the step size is fixed, so warmup only forgets the start."""


def on_devices(function: Callable[..., object]) -> jax.stages.Wrapped:
    """Compile a function that every device runs on its part of the leading axis of all arguments."""
    mesh = jax.make_mesh((jax.device_count(),), ("device",), axis_types=(AxisType.Auto,))
    each = P("device")
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=each, out_specs=each, check_vma=False))


def _log_density(x: jax.Array) -> jax.Array:
    """Return the log density of a standard normal, in nats; `x` is (coordinate,)."""
    return jnp.sum(-0.5 * x**2 - 0.5 * jnp.log(2 * jnp.pi))


class DrawsCase(TypedDict):
    """Draws of each chain, or trajectories."""

    draws: int


class Chains:
    """A contender with a fixed step size: the kernel `hmc` of this project, or TFP's sampler as in the tutorial.

    Args:
        package: ``ours`` or ``tfp``.
        saved: file for the states; empty for none.
        step_size, num_steps: parameters of a trajectory.
    """

    def __init__(
        self, *, package: str, saved: str = "", step_size: float = STEP_SIZE, num_steps: int = NUM_STEPS
    ) -> None:
        self._package, self._saved, self._step_size, self._num_steps = package, saved, step_size, num_steps

    def _sample(self, keys: jax.Array, num_draws: int) -> jax.Array:
        """Return states (1, draw, chain, coordinate) of one device from its keys (1,)."""
        start, key = jnp.zeros((CHAINS, DIMENSION)), keys[0]
        if self._package == "ours":
            keys, settings = jax.random.split(key, CHAINS), (self._step_size, self._num_steps)
            return run_hmc(_log_density, start, keys, WARMUP + num_draws, *settings)[0][None, WARMUP:]
        kernel = tfp.mcmc.HamiltonianMonteCarlo(jax.vmap(_log_density), self._step_size, self._num_steps)
        named: dict[str, Any] = {"kernel": kernel, "num_burnin_steps": WARMUP, "trace_fn": None, "seed": key}
        return tfp.mcmc.sample_chain(num_draws, start, **named)[None]

    def prepare(self, case: DrawsCase) -> dict[str, object]:
        """Compile, sample once and save the states."""
        self._keys = jax.random.split(jax.random.key(SEED), jax.device_count())
        program = on_devices(lambda keys: self._sample(keys, case["draws"]))
        self._run, compile_s = timed(lambda: program.lower(self._keys).compile())
        if self._saved:
            np.save(self._saved, np.asarray(self._run(self._keys)))
        self.run(0)
        return {"compile_s": compile_s, "device": jax.devices()[0].device_kind, "devices": jax.device_count()}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample and wait for the states, which are the same in every run."""
        states = jax.block_until_ready(self._run(self._keys))
        return {"shape": " ".join(map(str, states.shape))}


class Collectives:
    """Evaluates both tables; nothing is timed."""

    def prepare(self, case: Mapping[str, int]) -> dict[str, object]:
        """Return the rows of both tables; random inputs follow from the seed."""
        generator = np.random.default_rng(case["seed"])
        inputs = {"published": np.arange(jax.device_count()), "probe": generator.integers(-99, 99, jax.device_count())}
        sums = [row for name, values in inputs.items() for row in _sums(name, values)]
        key = jax.random.key(case["seed"])
        return {"sums": sums, "densities": [*_densities("single", key, _single), *_densities("joint", key, _joint)]}


def sum_over_devices(x: jax.Array) -> jax.Array:
    """Return the sum over all devices, on each."""
    return jax.lax.psum(x, "device")


def _sums(case: str, values: np.ndarray) -> list[dict[str, object]]:
    totals = np.asarray(on_devices(sum_over_devices)(jnp.asarray(values)))
    text = " ".join(map(str, values))
    return [{"case": case, "device": d, "inputs": text, "total": int(total)} for d, total in enumerate(totals)]


Part = Callable[[Any], Any]
"""Makes the distribution of all devices' values out of that of one."""


def _single(part: Part) -> Any:
    """Return a normal for all devices."""
    return part(tfd.Normal(jnp.zeros(()), SCALE))


def _joint(part: Part) -> Any:
    """Return a joint distribution: a plain normal, equal on all devices, and one for all devices centred on it."""
    return tfd.JointDistributionSequential(
        [tfd.Normal(jnp.zeros(()), 1.0), lambda centre: part(tfd.Normal(centre, SCALE))]
    )


def _densities(case: str, key: jax.Array, make: Callable[[Part], Any]) -> Iterator[dict[str, object]]:
    """Yield rows of a sharded distribution: each device draws its own value, and reports the density of all."""

    def sample(keys: jax.Array) -> Any:
        distribution = make(lambda normal: tfed.Sharded(normal, shard_axis_name="device"))
        parts = distribution.sample(seed=keys[0])
        return jax.tree.map(lambda x: x[None], (parts, distribution.log_prob(parts)))

    # The key is the same on every device; the distribution itself makes the values differ.
    parts, densities = on_devices(sample)(jnp.stack([key] * jax.device_count()))
    (*centres, values), structure = jax.tree.flatten(parts)
    whole = jax.tree.unflatten(structure, [*(c[0] for c in centres), values])
    plain = make(lambda normal: tfd.Sample(normal, len(values))).log_prob(whole)
    inputs = {
        "values": [*(c[:1] for c in centres), values],
        "loc": [np.zeros(len(centres)), *(centres or [np.zeros(len(values))])],
        "scale": [np.ones(len(centres)), np.full(len(values), SCALE)],
    }
    texts = {k: " ".join(map(repr, np.concatenate(v).astype(np.float64).tolist())) for k, v in inputs.items()}
    for device, (value, density) in enumerate(zip(values.tolist(), densities.tolist(), strict=True)):
        about = {"case": case, "device": device, "own_value": value}
        yield {**about, "log_density": density, "plain_log_density": float(plain), **texts}
