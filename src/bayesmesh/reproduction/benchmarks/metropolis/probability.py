"""Contender TFP: `RandomWalkMetropolis`, with the right density as a distribution, compiled or not; keeps all draws."""

from __future__ import annotations

import time
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import tensorflow_probability.substrates.jax as tfp

from bayesmesh.reproduction.benchmarks.metropolis.last_states import WalkCase, describe_states, warm_up
from bayesmesh.reproduction.benchmarks.metropolis.target import LOCATIONS, SCALES, START, WEIGHTS

__all__ = ["Tfp"]

tfd = tfp.distributions


class Tfp:
    """`tfp.mcmc.sample_chain`.

    Args:
        mode: ``compiled`` within `jax.jit`; ``plain`` without, where JAX traces and compiles TFP's loop in each call;
            ``eager`` with every operation called separately, as TensorFlow does by default.
    """

    def __init__(self, mode: str) -> None:
        self.is_compiled, self.is_eager = mode == "compiled", mode == "eager"
        # Float32 like the others, whatever the environment; the process belongs to this contender alone.
        jax.config.update("jax_enable_x64", False)

    def prepare(self, case: WalkCase) -> Mapping[str, object]:
        """Compile ahead of time and warm up; without compilation, one step fills JAX's caches of single operations."""
        self.case = case
        self.start = jax.block_until_ready(jnp.full(case["chains"], START, jnp.float32))
        target = tfd.MixtureSameFamily(
            tfd.Categorical(probs=jnp.array(WEIGHTS)), tfd.Normal(jnp.array(LOCATIONS), jnp.array(SCALES))
        )
        self.kernel = tfp.mcmc.RandomWalkMetropolis(
            target.log_prob, new_state_fn=tfp.mcmc.random_walk_normal_fn(scale=case["scale"])
        )
        begin, seconds = time.perf_counter(), 0.0
        if self.is_compiled:
            program = jax.jit(lambda key, start: self._sample(key, start, case["samples"]))
            self.program = program.lower(jax.random.key(0), self.start).compile()
            seconds = time.perf_counter() - begin
        warm_up(self, {**case, "samples": case["samples"] if self.is_compiled else 1})
        return {"compile_s": seconds, "platform": jax.default_backend(), "device": jax.devices()[0].device_kind}

    def _sample(self, key: jax.Array, start: jax.Array, samples: int) -> jax.Array:
        draws: jax.Array = tfp.mcmc.sample_chain(
            samples, current_state=start, kernel=self.kernel, trace_fn=None, seed=key
        )
        return draws

    def run(self, repeat: int) -> Mapping[str, object]:
        """Take all steps of all chains."""
        key = jax.random.key(repeat)
        if self.is_compiled:
            draws = self.program(key, self.start)
        else:
            with jax.disable_jit(self.is_eager):
                draws = self._sample(key, self.start, self.case["samples"])
        means = draws.mean(axis=0) if self.case["keeps_means"] else None
        return describe_states(jax.block_until_ready(draws)[-1], means)
