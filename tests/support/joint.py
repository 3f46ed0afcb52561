"""Replicates that begin in exact draws of latents and outcomes, and take turns at a step of a kernel and a fresh draw of the outcomes.

Right steps leave the joint distribution of both as it is (Geweke 2004, doi:10.1198/016214504000001132). An error that turns would
wash out shows after one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import Position
from bayesmesh.sampling.density.log_density import Target

type Both = tuple[Position, jax.Array]
"""Positions and outcomes of all replicates."""


class Replicates(NamedTuple):
    """Chains of one iteration at a time, each with outcomes of its own.

    Attributes:
        target: the model, whose rows lie on as many devices as the test wants.
        kernel: takes the steps.
        number: of replicates.
        draw: (key, latents) -> outcomes, (row,).
        data: (outcomes, row of each slot) -> what the target binds.
    """

    target: Target
    kernel: Any
    number: int
    draw: Callable[[jax.Array, Any], jax.Array]
    data: Callable[[jax.Array, Any], dict[str, jax.Array]]

    def exact(self, seed: int) -> Both:
        """Return exact draws."""
        position = jax.jit(jax.vmap(self.target.sample_prior))(self._keys(seed, 0))
        return position, jax.jit(self._outcomes)(self._keys(seed, 1), position)

    def after(self, turns: int) -> Both:
        """Return exact draws after some turns."""

        def turn(i: jax.Array, both: Both) -> Both:
            position = jax.vmap(self._move)(self._keys(5, i), *both)
            return position, self._outcomes(self._keys(6, i), position)

        return jax.jit(lambda both: jax.lax.fori_loop(0, turns, turn, both))(self.exact(1))

    def latents(self, position: Position) -> dict[str, jax.Array]:
        """Return latents of all replicates."""
        return jax.vmap(self.target.constrain)(position)

    def _keys(self, seed: int, iteration: Any) -> jax.Array:
        own = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(seed), c))(jnp.arange(self.number))
        return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(own)

    def _outcomes(self, keys: jax.Array, position: Position) -> jax.Array:
        return jax.vmap(self.draw)(keys, self.latents(position))

    def _move(self, key: jax.Array, position: Position, outcomes: jax.Array) -> Position:
        slots = self.target.layout.slots(range(self.target.layout.num_devices))
        bound = self.target.bind(self.data(outcomes, slots.row))
        state = self.kernel.init(key[None], jax.tree.map(lambda x: x[None], position), bound)
        after, _ = self.kernel.step(key[None], state, bound, ())
        return jax.tree.map(lambda x: x[0], after.position)
