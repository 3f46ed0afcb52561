"""Contenders in plain JAX: one jitted step called from a Python loop, and the whole loop compiled; float32.

The published kernel draws proposal and acceptance from one key, and has the published density. Its correct twin splits
the key and has the right density; all else is the same. Every chain has its own key, as published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from bayesmesh.reproduction.benchmarks.metropolis.last_states import WalkCase, describe_states, warm_up
from bayesmesh.reproduction.benchmarks.metropolis.target import LOCATIONS, SCALES, START, WEIGHTS

__all__ = ["Loop", "Stepwise"]

State = tuple[jax.Array, jax.Array]


def _log_density(position: jax.Array, *, is_published: bool) -> jax.Array:
    """Return the log density at one position, with the published signs or the right ones."""
    log_components = norm.logpdf(position, jnp.array(LOCATIONS), jnp.array(SCALES))
    log_weights = jnp.log(jnp.array(WEIGHTS))
    return -logsumexp(log_weights - log_components) if is_published else logsumexp(log_weights + log_components)


def _step(key: jax.Array, state: State, scale: float, *, is_published: bool) -> State:
    """Take one step of one chain."""
    position, log_density = state
    key_move, key_accept = (key, key) if is_published else jax.random.split(key)
    proposal = position + scale * jax.random.normal(key_move)
    proposed = _log_density(proposal, is_published=is_published)
    is_accepted = jnp.log(jax.random.uniform(key_accept)) < proposed - log_density
    return jnp.where(is_accepted, proposal, position), jnp.where(is_accepted, proposed, log_density)


class _Jax:
    """Common part of both contenders.

    Args:
        is_published: with the flaws of the published kernel.
    """

    def __init__(self, is_published: bool = True) -> None:
        self.is_published = is_published
        # As published, whatever the environment; the process belongs to this contender alone.
        jax.config.update("jax_enable_x64", False)

    def prepare(self, case: WalkCase) -> Mapping[str, object]:
        """Compile ahead of time, and warm up."""
        self.case = case
        start = jnp.full(case["chains"], START, jnp.float32)
        log_density = jax.vmap(lambda x: _log_density(x, is_published=self.is_published))(start)
        self.start = jax.block_until_ready((start, log_density))
        begin = time.perf_counter()
        self._compile()
        seconds = time.perf_counter() - begin
        warm_up(self, case)
        return {
            "compile_s": seconds,
            "platform": jax.default_backend(),
            "device": jax.devices()[0].device_kind,
        }

    def _compile(self) -> None:
        raise NotImplementedError

    def run(self, repeat: int) -> Mapping[str, object]:
        """Take all steps of all chains."""
        raise NotImplementedError

    def _step(self, key: jax.Array, state: State) -> State:
        return _step(key, state, self.case["scale"], is_published=self.is_published)


class Stepwise(_Jax):
    """A jitted step, called from a Python loop."""

    def _compile(self) -> None:
        def steps(key: jax.Array, state: State) -> State:
            return jax.vmap(self._step)(jax.random.split(key, self.case["chains"]), state)

        self.steps: Callable[[jax.Array, State], State] = jax.jit(steps)
        jax.block_until_ready(self.steps(jax.random.key(0), self.start))

    def run(self, repeat: int) -> Mapping[str, object]:
        """Take all steps of all chains."""
        state = self.start
        for key in jax.random.split(jax.random.key(repeat), self.case["samples"]):
            state = self.steps(key, state)
        return describe_states(jax.block_until_ready(state)[0])


class Loop(_Jax):
    """All steps in one program; every chain has its own key and splits it at every step."""

    def _compile(self) -> None:
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
        self.program = program.lower(keys, self.start, jnp.int32(1)).compile()
        jax.block_until_ready(self.program(keys, self.start, jnp.int32(1)))

    def run(self, repeat: int) -> Mapping[str, object]:
        """Take all steps of all chains."""
        keys = self.split(jax.random.key(repeat))
        last, means = jax.block_until_ready(self.program(keys, self.start, jnp.int32(self.case["samples"])))
        return describe_states(last, means if self.case["keeps_means"] else None)
