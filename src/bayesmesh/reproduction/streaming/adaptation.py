"""The scale of a random walk's proposal, by stochastic approximation of an acceptance of 0.44.

Reference:
    Gelman, Roberts and Gilks 1996, "Efficient Metropolis jumping rules", Bayesian Statistics 5: 0.44 in one dimension.
    Andrieu and Thoms 2008, "A tutorial on adaptive MCMC", doi:10.1007/s11222-008-9110-y, section 5.1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from bayesmesh.reproduction.streaming.metropolis import DensityFn

__all__ = ["ACCEPTANCE", "adapt_scale"]

ACCEPTANCE = 0.44

_CHAINS, _ROUNDS, _STEPS = 512, 60, 20


def adapt_scale(density_fn: DensityFn, start: float, *, seed: int, scale: float = 1.0) -> float:
    """Return a scale at which a proposal is accepted with probability 0.44, once chains have left their start.

    Each of 60 rounds takes 20 steps of 512 chains and moves the logarithm of the scale by a gain that falls from round to
    round; the second half is averaged. These steps are no part of any result.

    Args:
        density_fn: the target.
        start: where chains begin.
        seed: of these steps.
        scale: to begin with.
    """

    def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        position, log_scale = carry
        key_move, key_accept = jax.random.split(key)
        move = jax.random.normal(key_move, position.shape, jnp.float32)
        proposal = position + jnp.exp(log_scale) * move
        threshold = jax.random.uniform(key_accept, position.shape, jnp.float32)
        is_accepted = threshold * density_fn(position) < density_fn(proposal)
        return (jnp.where(is_accepted, proposal, position), log_scale), is_accepted.mean(dtype=jnp.float32)

    def one_round(
        carry: tuple[jax.Array, jax.Array], given: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        number, key = given
        (position, log_scale), rates = lax.scan(step, carry, jax.random.split(key, _STEPS))
        gain = 4.0 / (1.0 + number) ** 0.6
        log_scale += (gain * (rates.mean() - ACCEPTANCE)).astype(jnp.float32)
        return (position, log_scale), log_scale

    rounds = (jnp.arange(_ROUNDS, dtype=jnp.float32), jax.random.split(jax.random.key(seed), _ROUNDS))
    at = (jnp.full(_CHAINS, start, jnp.float32), jnp.log(jnp.float32(scale)))
    _, found = jax.jit(lambda at, rounds: lax.scan(one_round, at, rounds))(at, rounds)
    return float(jnp.exp(found[_ROUNDS // 2 :].mean()))
