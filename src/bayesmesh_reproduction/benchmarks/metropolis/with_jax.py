"""Contenders in plain JAX: one jitted step called from a Python loop, and the whole loop compiled; float32.

The published kernel draws proposal and acceptance from one key, and has the published density. Its correct twin splits
the key and has the right density; all else is the same. Every chain has its own key, as published.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from bayesmesh_reproduction.benchmarks.metropolis.states import JaxWalk, describe_states
from bayesmesh_reproduction.benchmarks.metropolis.target import LOCATIONS, SCALES, START, WEIGHTS

State = tuple[jax.Array, jax.Array]


class _Jax(JaxWalk):
    """The kernel of both contenders.

    Args:
        is_published: with the flaws of the published kernel.
    """

    def __init__(self, is_published: bool = True) -> None:
        self.is_published = is_published

    def start(self) -> None:
        position = jnp.full(self.case["chains"], START, jnp.float32)
        self.first = jax.block_until_ready((position, jax.vmap(self._log_density)(position)))

    def _log_density(self, position: jax.Array) -> jax.Array:
        """Return the log density at one position, with the published signs or the right ones."""
        log_components = norm.logpdf(position, jnp.array(LOCATIONS), jnp.array(SCALES))
        log_weights = jnp.log(jnp.array(WEIGHTS))
        if self.is_published:
            return -logsumexp(log_weights - log_components)
        return logsumexp(log_weights + log_components)

    def _step(self, key: jax.Array, state: State) -> State:
        """Take one step of one chain."""
        position, log_density = state
        key_move, key_accept = (key, key) if self.is_published else jax.random.split(key)
        proposal = position + self.case["scale"] * jax.random.normal(key_move)
        proposed = self._log_density(proposal)
        is_accepted = jnp.log(jax.random.uniform(key_accept)) < proposed - log_density
        return jnp.where(is_accepted, proposal, position), jnp.where(is_accepted, proposed, log_density)


class Stepwise(_Jax):
    """A jitted step, called from a Python loop."""

    def compile(self) -> None:
        def steps(key: jax.Array, state: State) -> State:
            return jax.vmap(self._step)(jax.random.split(key, self.case["chains"]), state)

        self.steps = jax.jit(steps)
        jax.block_until_ready(self.steps(jax.random.key(0), self.first))

    def run(self, repeat: int) -> dict[str, object]:
        state = self.first
        for key in jax.random.split(jax.random.key(repeat), self.case["samples"]):
            state = self.steps(key, state)
        return describe_states(jax.block_until_ready(state)[0])


class Loop(_Jax):
    """All steps in one program; every chain has its own key and splits it at every step."""

    def compile(self) -> None:
        keeps_means = self.case["keeps_means"]

        def chain(key: jax.Array, state: State, samples: jax.Array) -> tuple[jax.Array, jax.Array]:
            def body(_: jax.Array, carry: tuple[jax.Array, State, jax.Array]) -> tuple[jax.Array, State, jax.Array]:
                key, state, total = carry
                key, key_step = jax.random.split(key)
                state = self._step(key_step, state)
                return key, state, total + state[0] if keeps_means else total

            _, state, total = lax.fori_loop(0, samples, body, (key, state, jnp.float32(0)))
            return state[0], total / samples

        program = jax.jit(jax.vmap(chain, in_axes=(0, 0, None)))
        self.split = jax.jit(lambda key: jax.random.split(key, self.case["chains"]))
        keys = jax.block_until_ready(self.split(jax.random.key(0)))
        self.program = program.lower(keys, self.first, jnp.int32(1)).compile()
        jax.block_until_ready(self.program(keys, self.first, jnp.int32(1)))

    def run(self, repeat: int) -> dict[str, object]:
        keys = self.split(jax.random.key(repeat))
        last, means = jax.block_until_ready(self.program(keys, self.first, jnp.int32(self.case["samples"])))
        return describe_states(last, means if self.case["keeps_means"] else None)
