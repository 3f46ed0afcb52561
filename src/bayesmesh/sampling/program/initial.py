"""Compute starting points: chains optimise towards a mode, and may then start from draws of the normal there."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from bayesmesh.kernels.base import Density, Position, map_parts
from bayesmesh.kernels.hamiltonian.laplace import (
    NormalAtMode,
    Once,
    call_here,
    fit_normal,
    measure_curvature,
)
from bayesmesh.kernels.hamiltonian.metrics.base import standard_normal
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.sampling.density.log_density import BoundTarget


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
    key: Key[Array, " chain"],
    climbed: Position,
    target: BoundTarget,
    widening: float | Float[Array, ""],
    curvature_at: str = "mode",
    once: Once = call_here,
) -> tuple[Position, NormalAtMode]:
    """Return draws of the normal at the mode near the highest of some positions, and that normal.

    Args:
        key: (chain,) typed keys.
        climbed: (climber, ...), positions near modes.
        target: the model on its data.
        widening: factor for the draws' distance from the mode.
        curvature_at: ``draw`` replaces the curvature of the normal by that at one of its draws.
        once: as for `measure_curvature`.
    """
    density = target.log_density(climbed)
    best = jnp.argmax(jnp.nan_to_num(density.log_prior + density.log_likelihood, nan=-jnp.inf))
    units = [b.indices for b in target.target.position.blocks().values() if b.part == "shared"]
    start = map_parts(lambda q: q[best][None], climbed)
    normal = fit_normal(target, start, units, target.expand(start), once)
    if curvature_at == "draw":
        there = map_parts(jnp.add, normal.mean, normal.curvature.move(_noise(key[:1], 3, climbed, target)))
        normal = normal._replace(curvature=measure_curvature(target.expand(there), there, units, once))
    moved = normal.curvature.move(_noise(key, 2, climbed, target))
    return map_parts(lambda m, d: m + (widening * d).astype(m.dtype), normal.mean, moved), normal


def _noise(key: Key[Array, " chain"], number: int, like: Position, target: BoundTarget) -> Position:
    return standard_normal(fold(key, number), like, target.mask)
