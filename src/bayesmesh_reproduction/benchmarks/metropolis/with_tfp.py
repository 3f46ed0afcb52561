"""Contender TFP: `RandomWalkMetropolis`, with the right density as a distribution, compiled or not; keeps all draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import tensorflow_probability.substrates.jax as tfp

from bayesmesh_reproduction.benchmarks.metropolis.states import JaxWalk, describe_states
from bayesmesh_reproduction.benchmarks.metropolis.target import LOCATIONS, SCALES, START, WEIGHTS

tfd = tfp.distributions


class Tfp(JaxWalk):
    """`tfp.mcmc.sample_chain`, in float32 like the others.

    Args:
        mode: ``compiled`` within `jax.jit`; ``plain`` without, where JAX traces and compiles TFP's loop in each call;
            ``eager`` with every operation called separately, as TensorFlow does by default.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def start(self) -> None:
        self.first = jax.block_until_ready(jnp.full(self.case["chains"], START, jnp.float32))
        target = tfd.MixtureSameFamily(
            tfd.Categorical(probs=jnp.array(WEIGHTS)), tfd.Normal(jnp.array(LOCATIONS), jnp.array(SCALES))
        )
        move = tfp.mcmc.random_walk_normal_fn(scale=self.case["scale"])
        self.kernel = tfp.mcmc.RandomWalkMetropolis(target.log_prob, new_state_fn=move)

    def compile(self) -> None:
        if self.mode == "compiled":
            program = jax.jit(lambda key, start: self._sample(key, start, self.case["samples"]))
            self.program = program.lower(jax.random.key(0), self.first).compile()

    def warm_up(self) -> None:
        if self.mode == "compiled":
            super().warm_up()
        else:
            # One step fills JAX's caches of single operations.
            jax.block_until_ready(self._walk(0, 1))

    def _sample(self, key: jax.Array, start: jax.Array, samples: int) -> jax.Array:
        return tfp.mcmc.sample_chain(samples, current_state=start, kernel=self.kernel, trace_fn=None, seed=key)

    def _walk(self, repeat: int, samples: int) -> jax.Array:
        key = jax.random.key(repeat)
        if self.mode == "compiled":
            return self.program(key, self.first)
        with jax.disable_jit(self.mode == "eager"):
            return self._sample(key, self.first, samples)

    def run(self, repeat: int) -> dict[str, object]:
        draws = self._walk(repeat, self.case["samples"])
        means = draws.mean(axis=0) if self.case["keeps_means"] else None
        return describe_states(jax.block_until_ready(draws)[-1], means)
