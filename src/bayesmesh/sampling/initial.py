"""Compute starting points: chains optimise towards a mode, and may then start in draws of the normal there."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from bayesmesh.kernels.base import Density, Position, map_parts
from bayesmesh.kernels.hamiltonian.laplace import Curvature, fit_normal
from bayesmesh.kernels.hamiltonian.metrics.base import standard_normal
from bayesmesh.sampling.density import BoundTarget


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


def draw_at_mode(
    key: Key[Array, " chain"], position: Position, target: BoundTarget, spread: float | Float[Array, ""]
) -> tuple[Position, Curvature]:
    """Return draws of the normal at the mode near the highest of some positions, and its curvature.

    Args:
        key: (chain,) typed keys.
        position: (chain, ...), near modes.
        target: the model on its data.
        spread: the draws' distance from the mode is multiplied by it.
    """
    density = target.log_density(position)
    best = jnp.argmax(jnp.nan_to_num(density.log_prior + density.log_likelihood, nan=-jnp.inf))
    units = [b.indices for b in target.target.position.blocks().values() if b.part == "shared"]
    start = map_parts(lambda q: q[best][None], position)
    mean, curvature = fit_normal(target, start, units, target.expand(start))
    noise = standard_normal(jax.vmap(lambda k: jax.random.fold_in(k, 2))(key), position, target.mask)
    moved = curvature.move(noise)
    return map_parts(lambda m, d: m + (spread * d).astype(m.dtype), mean, moved), curvature
