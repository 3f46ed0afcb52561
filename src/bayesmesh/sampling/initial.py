"""Compute starting points: every chain optimises from its own prior draw towards a mode."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from bayesmesh.kernels.base import Density, Position


def climb(
    position: Position,
    log_density_fn: Callable[[Position], Density],
    num_steps: int,
    learning_rate: float | Float[Array, ""],
) -> Position:
    """Return positions after Adam (Kingma and Ba 2015) with a cosine decay; each step costs one gradient per chain.

    Args:
        position: where each chain starts.
        log_density_fn: the target.
        num_steps: Adam steps.
        learning_rate: learning rate of the first step; it decays to a hundredth.
    """
    decay = optax.cosine_decay_schedule(1.0, num_steps, alpha=0.01)
    optimiser = optax.adam(lambda count: learning_rate * decay(count))

    def step(_: Int[Array, ""], carry: tuple[Position, optax.OptState]) -> tuple[Position, optax.OptState]:
        at, memory = carry
        uphill = jax.tree.map(jnp.negative, log_density_fn(at).gradient)
        updates, memory = optimiser.update(uphill, memory)
        return optax.apply_updates(at, updates), memory

    return jax.lax.fori_loop(0, num_steps, step, (position, optimiser.init(position)))[0]
