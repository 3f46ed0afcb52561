"""The Metropolis-adjusted microcanonical sampler: trajectories of constant speed, for many chains in lock step.

The direction of motion turns towards the gradient and its speed never changes, so that a step has the same length
wherever a chain is. Momentum lies on the sphere whose radius is the square root of the number of coordinates, so that
step sizes and lengths have the same units as in `chees`, from which the kernel takes its search for a trajectory length.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Position, Target, map_parts
from bayesmesh.kernels.chees import Chees
from bayesmesh.kernels.hamiltonian.metrics.base import apply_mask
from bayesmesh.kernels.hamiltonian.trajectory import (
    HamiltonianInfo,
    HamiltonianState,
    accept,
    add_scaled,
    batch_dot,
    over_chains,
    share_of_kick,
)
from bayesmesh.kernels.options import MamsOptions as Options

# With constant speed, there is no energy to compare between draws.
_STATISTICS = {name: statistic for name, statistic in Chees.statistics.items() if name != "energy"}


class Mams(Chees):
    """Adjusted microcanonical sampling with full refreshment of the direction before each trajectory."""

    pretty_name = "Adjusted microcanonical"
    options: Options
    reference = "Robnik, Cohn-Gordon and Seljak 2025, arXiv:2503.01707; integrator: ver Steeg and Galstyan 2021"
    min_chains = 2
    statistics = _STATISTICS

    def init(self, key: jax.Array, position: Position, target: Target) -> HamiltonianState:
        """Return the state at a position; needs one gradient and no randomness.

        Raises:
            ConfigError: there is only one coordinate, so that nothing can turn.
        """
        if sum(math.prod(x.shape[1:]) for x in jax.tree.leaves(position)) < 2:
            raise ConfigError(
                "kernel 'mams' needs at least 2 coordinates, and the model has 1",
                "use for example kernel: {name: nuts}",
            )
        return super().init(key, position, target)

    def step(
        self, key: Key[Array, " chain"], state: HamiltonianState, target: Target, tuning: HamiltonianTuning
    ) -> tuple[HamiltonianState, HamiltonianInfo]:
        """Make one trajectory of jittered length."""
        num_steps = self.num_leapfrog_steps(state, tuning)
        step_size = jnp.broadcast_to(tuning.step_size, state.log_prior.shape)
        size = num_coordinates(state.position, target.mask)
        momentum = to_sphere(self.metric.draw_momentum(key, state.position, target.mask), size)

        def kick(at: HamiltonianState, momentum: Position, time: jax.Array) -> tuple[Position, jax.Array]:
            return turn(momentum, self.metric.whiten_gradient(tuning.metric, at.gradient), time, size)

        def leapfrog(index: jax.Array, carry: tuple[HamiltonianState, Position, jax.Array]) -> Any:
            at, momentum, log_volume = carry
            direction = self.metric.move(tuning.metric, momentum)
            position = add_scaled(at.position, direction, step_size)
            at = HamiltonianState(position, *target.log_density(position), at.num_steps)
            momentum, change = kick(at, momentum, share_of_kick(index, num_steps) * step_size)
            return at, momentum, log_volume + change

        # Successive turns by the same force are merged: the second half of one step and the first half of the next.
        begin = (state, *kick(state, momentum, 0.5 * step_size))
        proposal, momentum, log_volume = jax.lax.fori_loop(0, num_steps, leapfrog, begin)
        log_ratio = (
            (proposal.log_prior - state.log_prior) + (proposal.log_likelihood - state.log_likelihood) + log_volume
        )
        return accept(key, log_ratio, proposal, state, momentum, num_steps, step_size)


def num_coordinates(position: Position, mask: Position) -> Float[Array, ""]:
    """Return the number of coordinates of a chain, () float64, without padding."""
    one = apply_mask(jax.tree.map(lambda x: jnp.ones_like(x[:1]), position), mask)
    return batch_dot(one, one)[0]


def to_sphere(momentum: Position, size: Float[Array, ""]) -> Position:
    """Scale momenta (chain, ...) to the square root of the number of coordinates."""
    scale = jnp.sqrt(size / batch_dot(momentum, momentum))
    return map_parts(lambda p: p * over_chains(scale.astype(p.dtype), p), momentum)


def turn(
    momentum: Position, force: Position, time: Float[Array, "*chain"], size: Float[Array, ""]
) -> tuple[Position, Float[Array, " chain"]]:
    """Turn momenta towards a constant force, exactly, for some time.

    The formula is written so as not to overflow (ver Steeg and Galstyan 2021, "Hamiltonian dynamics with non-Newtonian
    momentum for rapid sampling").

    Args:
        momentum: (chain, ...), on the sphere.
        force: (chain, ...), the gradient of the log density in the coordinates of the metric.
        time: () or (chain,) float64, such as half a step size.
        size: () float64, number of coordinates.

    Returns:
        The momentum, and the log of the factor by which the turn changes volume on the sphere, (chain,) float64.
    """
    strength, radius = jnp.sqrt(batch_dot(force, force)), jnp.sqrt(size)
    cosine = batch_dot(momentum, force) / jnp.maximum(strength * radius, jnp.finfo(jnp.float64).tiny)
    angle = time * strength * radius / (size - 1)
    decay = jnp.exp(-angle)
    along = (1 - decay) * (1 + decay + cosine * (1 - decay)) * radius / jnp.maximum(strength, 1e-300)

    def one(p: jax.Array, f: jax.Array) -> jax.Array:
        return over_chains(along.astype(p.dtype), p) * f + over_chains((2 * decay).astype(p.dtype), p) * p

    log_stretch = angle - math.log(2) + jnp.log1p(cosine + (1 - cosine) * decay**2)
    return to_sphere(map_parts(one, momentum, force), size), (1 - size) * log_stretch
