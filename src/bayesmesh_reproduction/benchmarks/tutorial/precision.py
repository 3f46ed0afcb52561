"""Measure the effect of matrix products in bfloat16 on trajectories of Hamiltonian Monte Carlo.

An accelerator's matrix unit may round the factors of a product to 8 bits of precision, and add in float32. Here factors
are rounded explicitly, so that every device behaves the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.data.sources import digits
from bayesmesh_reproduction.benchmarks.tutorial.devices import DrawsCase
from bayesmesh_reproduction.hmc import SEED, run_hmc

REPEATS = 8
"""Number of copies of the digits: errors of a density grow with its rows, and the published experiments have more."""

CHAINS, NUM_STEPS, STEP_SIZE = 4, 30, 0.006
"""Trajectories that are almost always accepted in float32."""

ASCENT_STEPS, ASCENT_RATE = 200, 0.0008
"""Gradient ascent from zero to the start of the chains."""


def _product(precision: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return a matrix product of float32 arrays whose factors have that precision, also in its derivative."""
    if precision == "highest":
        return lambda a, b: jnp.matmul(a, b, precision="highest")

    def rounded(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = (jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7) for x in (a, b))
        return jnp.matmul(a, b, precision="highest")

    product = jax.custom_vjp(rounded)
    product.defvjp(lambda a, b: (rounded(a, b), (a, b)), lambda kept, g: (rounded(g, kept[1].T), rounded(kept[0].T, g)))
    return product


def log_density(weights: jax.Array, features: jax.Array, labels: jax.Array, precision: str) -> jax.Array:
    """Return the log posterior density of softmax regression up to a constant, in nats, with standard normal weights.

    Args:
        weights: (features, classes) float32.
        features: (rows, features) float32.
        labels: (rows,) integers.
        precision: ``highest`` or ``bfloat16``, of the matrix products.
    """
    logits = _product(precision)(features, weights)
    likelihood = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return jnp.sum(likelihood, dtype=jnp.float64) - 0.5 * jnp.sum(weights**2, dtype=jnp.float64)


class Trajectories:
    """Chains on the digits, from near their mode, at a step size that is the same for both precisions.

    Args:
        precision: precision of the matrix products.
    """

    def __init__(self, *, precision: str) -> None:
        self._precision = precision

    def prepare(self, case: DrawsCase) -> dict[str, object]:
        """Find the starting point in full precision, and compile."""
        rows = digits.Source(digits.Options()).read(Path("nowhere")).rows
        features = jnp.asarray(np.tile(rows["features"][:], (REPEATS, 1)) / 16, jnp.float32)
        labels = jnp.asarray(np.tile(rows["label"][:], REPEATS), jnp.int32)

        def of_chain(weights: jax.Array) -> jax.Array:
            return log_density(weights.reshape(features.shape[1], 10), features, labels, self._precision)

        @jax.jit
        def sample(start: jax.Array) -> tuple[jax.Array, jax.Array]:
            start, keys = jnp.tile(start.ravel(), (CHAINS, 1)), jax.random.split(jax.random.key(SEED), CHAINS)
            _, info = run_hmc(of_chain, start, keys, case["draws"], STEP_SIZE, NUM_STEPS)
            assert info.diverging is not None
            return info.acceptance_rate, info.diverging

        self._sample, self._start = sample, _ascend(features, labels)
        return {"device": jax.devices()[0].device_kind, **self.run(-1)}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample; return the mean acceptance probability and the share of divergent trajectories."""
        acceptance, divergences = jax.block_until_ready(self._sample(self._start))
        return {"acceptance": float(np.mean(acceptance)), "divergences": float(np.mean(divergences))}


@jax.jit
def _ascend(features: jax.Array, labels: jax.Array) -> jax.Array:
    """Return weights near the mode, (features, classes) float32."""
    gradient = jax.grad(lambda w: log_density(w, features, labels, "highest"))
    start = jnp.zeros((features.shape[1], 10), jnp.float32)
    return jax.lax.fori_loop(0, ASCENT_STEPS, lambda _, w: w + ASCENT_RATE * gradient(w), start)
