"""The model as published: a forward algorithm in log scale, in JAX and in PyTensor, and the priors in PyMC.

"How to wrap a JAX function for use in PyMC" (PyMC example gallery): a scan over the steps of one process, mapped over
the processes. Implemented from the description in the text; our own model does not use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    import pymc
    from pytensor.tensor.variable import TensorVariable

NUM_STATES = 3


def pymc_model(log_likelihood: Callable[..., object]) -> pymc.Model:
    """Return the model in PyMC.

    Args:
        log_likelihood: takes the latents, by name and in the order of the gallery.
    """
    import pymc

    with pymc.Model() as model:
        latents = {
            "signal": pymc.Normal("signal", 0, 1),
            "noise": pymc.HalfNormal("noise", 1),
            "initial": pymc.Dirichlet("initial", np.ones(NUM_STATES)),
            "transition": pymc.Dirichlet("transition", np.ones((NUM_STATES, NUM_STATES))),
        }
        pymc.Potential("log_likelihood", log_likelihood(**latents))
    return model


def _process(
    emissions: jax.Array, signal: jax.Array, noise: jax.Array, log_initial: jax.Array, log_transition: jax.Array
) -> jax.Array:
    """Return the log likelihood of one process (time,)."""

    def log_emission(emission: jax.Array) -> jax.Array:
        means = jnp.arange(1, NUM_STATES + 1) * signal
        return -0.5 * ((emission - means) / noise) ** 2 - jnp.log(noise) - 0.5 * math.log(2 * math.pi)

    def step(log_alpha: jax.Array, emission: jax.Array) -> tuple[jax.Array, None]:
        moved = jax.scipy.special.logsumexp(log_alpha[:, None] + log_transition, axis=0)
        return moved + log_emission(emission), None

    last, _ = jax.lax.scan(step, log_initial + log_emission(emissions[0]), emissions[1:])
    return jax.scipy.special.logsumexp(last)


def jax_log_likelihood(
    emissions: np.ndarray, signal: jax.Array, noise: jax.Array, initial: jax.Array, transition: jax.Array
) -> jax.Array:
    """Return the log likelihood of all processes (process, time), ()."""
    by_process = jax.vmap(_process, in_axes=(0, None, None, None, None))
    return jnp.sum(by_process(jnp.asarray(emissions), signal, noise, jnp.log(initial), jnp.log(transition)))


def pytensor_log_likelihood(
    emissions: np.ndarray, signal: TensorVariable, noise: TensorVariable, initial: TensorVariable,
    transition: TensorVariable,
) -> TensorVariable:  # fmt: skip
    """Build the same recurrence as a PyTensor graph over all processes, for PyTensor's compilers."""
    import pytensor
    import pytensor.tensor as pt

    means = pt.arange(1, NUM_STATES + 1) * signal
    deviations = (pt.as_tensor(emissions.T)[:, :, None] - means) / noise
    log_emission = -0.5 * deviations**2 - pt.log(noise) - 0.5 * math.log(2 * math.pi)

    def step(log_emission: TensorVariable, log_alpha: TensorVariable, log_transition: TensorVariable) -> TensorVariable:
        return pt.logsumexp(log_alpha[:, :, None] + log_transition[None], axis=1) + log_emission

    alphas = pytensor.scan(
        step, sequences=[log_emission[1:]], outputs_info=[pt.log(initial)[None, :] + log_emission[0]],
        non_sequences=[pt.log(transition)], return_updates=False,
    )  # fmt: skip
    return pt.sum(pt.logsumexp(alphas[-1], axis=1))
