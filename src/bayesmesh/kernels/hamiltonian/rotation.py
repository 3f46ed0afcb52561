"""Trajectories that are exact in a normal: a rotation in its coordinates, kicked by the remainder of the target.

With a normal N(m, A A^T) and z = A^-1 (q - m), the energy is split into (z.z + p.p) / 2, whose flow is a rotation of z and
p, and the rest, whose force is A^T times the gradient, plus z (Shahbaba, Lan, Johnson and Neal 2014, "Split Hamiltonian
Monte Carlo", section 2.2). Leapfrog steps must shrink with the number of coordinates even if the target equals that
normal; here only the remainder causes error.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bayesmesh.kernels.base import Position, Target, map_parts
from bayesmesh.kernels.hamiltonian.metrics.base import Metric
from bayesmesh.kernels.hamiltonian.trajectory import (
    HamiltonianInfo,
    HamiltonianState,
    SplitPoint,
    accept_by_energy,
)


def place_in_normal[Data](
    state: HamiltonianState, metric: Metric[Data, Any], data: Data, centre: Position
) -> HamiltonianState:
    """Return a state with z and the residual force there.

    Args:
        state: where the chains are.
        metric: the kind of metric.
        data: A.
        centre: m, without the chain axis.
    """
    white = metric.whiten_position(data, map_parts(lambda q, m: q - m[None], state.position, centre))
    force = map_parts(jnp.add, metric.whiten_gradient(data, state.gradient), white)
    return state._replace(split=SplitPoint(white, force))


def rotate(white: Position, momentum: Position, time: Float[Array, ""]) -> tuple[Position, Position]:
    """Return z and p after some time, () float64, under the normal alone."""

    def mix(a: jax.Array, x: jax.Array, b: jax.Array, y: jax.Array) -> jax.Array:
        return a.astype(x.dtype) * x + b.astype(x.dtype) * y

    cos, sin = jnp.cos(time), jnp.sin(time)
    turned = map_parts(lambda z, p: mix(cos, z, sin, p), white, momentum)
    return turned, map_parts(lambda z, p: mix(cos, p, -sin, z), white, momentum)


def run_split_trajectory[Data](
    key: Key[Array, " chain"],
    state: HamiltonianState,
    target: Target,
    metric: Metric[Data, Any],
    data: Data,
    centre: Position,
    step_size: Float[Array, ""],
    num_steps: Int[Array, ""],
) -> tuple[HamiltonianState, HamiltonianInfo]:
    """Make one Metropolis-corrected transition; each step costs one gradient, one product with A and one with A^T.

    Args:
        key: (chain,) typed keys.
        state: where the chains are.
        target: the log density.
        metric: the kind of metric.
        data: A.
        centre: m, without the chain axis.
        step_size: () float64.
        num_steps: () int32, the same for every chain.

    Returns:
        The next state (a rejected chain keeps its own) and the info.
    """
    momentum = metric.draw_momentum(key, state.position, target.mask)

    def kick(p: Position, force: Position) -> Position:
        return map_parts(lambda x, f: x + (0.5 * step_size).astype(x.dtype) * f, p, force)

    def step(_: jax.Array, carry: tuple[HamiltonianState, Position]) -> tuple[HamiltonianState, Position]:
        at, p = carry
        assert at.split is not None  # set by `place_in_normal`
        white, p = rotate(at.split.white, kick(p, at.split.force), step_size)
        position = map_parts(lambda m, d: m[None] + d, centre, metric.move(data, white))
        density = target.log_density(position)
        force = map_parts(jnp.add, metric.whiten_gradient(data, density.gradient), white)
        return HamiltonianState(position, *density, at.num_steps, SplitPoint(white, force)), kick(p, force)

    proposal, momentum_end = jax.lax.fori_loop(0, num_steps, step, (state, momentum))
    return accept_by_energy(key, proposal, state, momentum, momentum_end, num_steps, step_size)
