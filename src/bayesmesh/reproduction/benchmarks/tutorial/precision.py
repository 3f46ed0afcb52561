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
from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position, Target
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianInfo, HamiltonianState
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget
from bayesmesh.reproduction.benchmarks.tutorial.chains import DrawsCase

__all__ = ["Trajectories", "log_density"]

REPEATS = 8
"""Number of copies of the digits: errors of a density grow with its rows, and the published experiments have more."""

CHAINS, NUM_STEPS, STEP_SIZE = 4, 30, 0.006
"""Trajectories that are almost always accepted in float32."""

ASCENT_STEPS, ASCENT_RATE = 200, 0.0008
"""Gradient ascent from zero to the start of the chains."""

SEED = 20261121


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
    """Log posterior density of softmax regression up to a constant, in nats, with standard normal weights.

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
        features = jnp.asarray(np.tile(rows["features"], (REPEATS, 1)) / 16, jnp.float32)
        labels = jnp.asarray(np.tile(rows["label"], REPEATS), jnp.int32)

        def of_chain(weights: jax.Array) -> jax.Array:
            return log_density(weights.reshape(features.shape[1], 10), features, labels, self._precision)

        self._sample = jax.jit(lambda start: _sample(FunctionTarget(of_chain), start.ravel(), case["draws"]))
        self._start = _ascend(features, labels)
        return {"device": jax.devices()[0].device_kind, **self.run(-1)}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample; return the mean acceptance probability and the share of divergent trajectories."""
        del repeat
        info = jax.block_until_ready(self._sample(self._start))
        return {
            "acceptance": float(np.mean(info.acceptance_rate)),
            "divergences": float(np.mean(info.diverging)),
        }


@jax.jit
def _ascend(features: jax.Array, labels: jax.Array) -> jax.Array:
    """Return weights near the mode, (features, classes) float32."""
    gradient = jax.grad(lambda w: log_density(w, features, labels, "highest"))
    start = jnp.zeros((features.shape[1], 10), jnp.float32)
    return jax.lax.fori_loop(0, ASCENT_STEPS, lambda _, w: w + ASCENT_RATE * gradient(w), start)


def _sample(target: Target, start: jax.Array, num_draws: int) -> HamiltonianInfo:
    kernel = Hmc(Options(num_leapfrog_steps=NUM_STEPS), 0)
    tuning = HamiltonianTuning(jnp.asarray(STEP_SIZE, jnp.float64), (), ())
    keys = jax.random.split(jax.random.key(SEED), CHAINS)

    def step(state: HamiltonianState, draw: jax.Array) -> tuple[HamiltonianState, HamiltonianInfo]:
        key = jax.vmap(lambda k: jax.random.fold_in(k, draw))(keys)
        return kernel.step(key, state, target, tuning)

    state = kernel.init(keys, Position(jnp.broadcast_to(start, (CHAINS, *start.shape)), None), target)
    return jax.lax.scan(step, state, jnp.arange(num_draws))[1]
