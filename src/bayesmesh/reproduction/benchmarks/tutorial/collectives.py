"""Sums over devices, and densities of distributions with parts on different devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.reproduction.benchmarks.tutorial.chains import on_devices

tfd, tfed = tfp.distributions, tfp.experimental.distribute

SCALE = 2.0
"""Standard deviation of the sharded part."""

Array = np.ndarray | jax.Array


class Collectives:
    """Evaluates both tables; nothing is timed."""

    def prepare(self, case: Mapping[str, int]) -> dict[str, object]:
        """Return the rows of both tables; random inputs follow from the seed."""
        generator = np.random.default_rng(case["seed"])
        inputs = {"published": np.arange(jax.device_count()), "probe": generator.integers(-99, 99, jax.device_count())}
        sums = [row for name, values in inputs.items() for row in _sums(name, values)]
        key = jax.random.key(case["seed"])
        return {"sums": sums, "densities": [*_single(key), *_joint(key)]}


def sum_over_devices(x: jax.Array) -> jax.Array:
    """Return the sum over all devices, on each."""
    return jax.lax.psum(x, "device")


def _sums(case: str, values: np.ndarray) -> list[dict[str, object]]:
    totals = np.asarray(on_devices(sum_over_devices)(jnp.asarray(values)))
    text = " ".join(map(str, values))
    return [{"case": case, "device": d, "inputs": text, "total": int(total)} for d, total in enumerate(totals)]


def _single(key: jax.Array) -> Iterator[dict[str, object]]:
    """Rows of a sharded normal: each device draws its own value, and reports the density of all."""

    def sample(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        distribution = tfed.Sharded(tfd.Normal(jnp.zeros(()), SCALE), shard_axis_name="device")
        draw = distribution.sample(seed=keys[0])
        return draw[None], distribution.log_prob(draw)[None]

    values, densities = on_devices(sample, 2)(_repeated(key))
    plain = tfd.Sample(tfd.Normal(jnp.zeros(()), SCALE), len(values)).log_prob(values)
    yield from _rows("single", values, densities, plain, np.zeros(len(values)), np.full(len(values), SCALE))


def _joint(key: jax.Array) -> Iterator[dict[str, object]]:
    """Rows of a joint distribution: a plain normal, equal on all devices, and a sharded one centred on it."""

    def joint(part: Callable[[object], object]) -> tfp.distributions.JointDistributionSequential:
        return tfd.JointDistributionSequential(
            [tfd.Normal(jnp.zeros(()), 1.0), lambda centre: part(tfd.Normal(centre, SCALE))]
        )

    def sample(keys: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        distribution = joint(lambda normal: tfed.Sharded(normal, shard_axis_name="device"))
        centre, draw = distribution.sample(seed=keys[0])
        return centre[None], draw[None], distribution.log_prob([centre, draw])[None]

    centres, values, densities = on_devices(sample, 3)(_repeated(key))
    plain = joint(lambda normal: tfd.Sample(normal, len(values))).log_prob([centres[0], values])
    loc = np.concatenate([[0.0], centres])
    scale = np.concatenate([[1.0], np.full(len(values), SCALE)])
    yield from _rows("joint", np.concatenate([centres[:1], values]), densities, plain, loc, scale)


def _repeated(key: jax.Array) -> jax.Array:
    """Return the same key for every device; the distribution itself makes the values differ."""
    return jnp.stack([key] * jax.device_count())


def _rows(
    case: str, values: Array, densities: Array, plain: jax.Array, loc: Array, scale: Array
) -> Iterator[dict[str, object]]:
    texts = {"values": values, "loc": loc, "scale": scale}
    inputs = {name: " ".join(map(repr, np.asarray(found, np.float64).tolist())) for name, found in texts.items()}
    own = np.asarray(values)[-len(densities) :]
    for device, density in enumerate(np.asarray(densities)):
        about = {"case": case, "device": device, "own_value": float(own[device])}
        yield {**about, "log_density": float(density), "plain_log_density": float(plain), **inputs}
