"""Adapt the scale of a random walk's proposal to an acceptance rate of 0.44, by stochastic approximation.

References:
    Gelman, Roberts and Gilks 1996, "Efficient Metropolis jumping rules", Bayesian Statistics 5: 0.44 in one dimension.
    Andrieu and Thoms 2008, "A tutorial on adaptive MCMC", doi:10.1007/s11222-008-9110-y, section 5.1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from bayesmesh_reproduction.streaming.metropolis import DensityFn

ACCEPTANCE = 0.44

_CHAINS, _ROUNDS, _STEPS = 512, 60, 20

_State = tuple[jax.Array, jax.Array]
"""Positions (chain,) and the log of the scale, float32."""


def adapt_scale(density_fn: DensityFn, start: float, *, seed: int, scale: float = 1.0) -> float:
    """Return a scale at which proposals of chains that have left their start are accepted with probability 0.44.

    Each of 60 rounds takes 20 steps of 512 chains and moves the log of the scale by a gain that decreases from round to
    round; the second half of the rounds is averaged. The steps are discarded.

    Args:
        density_fn: density of the target.
        start: first position of all chains.
        seed: seed of these steps.
        scale: first scale.
    """

    def step(state: _State, key: jax.Array) -> tuple[_State, jax.Array]:
        position, log_scale = state
        key_move, key_accept = jax.random.split(key)
        proposal = position + jnp.exp(log_scale) * jax.random.normal(key_move, position.shape, jnp.float32)
        threshold = jax.random.uniform(key_accept, position.shape, jnp.float32)
        is_accepted = threshold * density_fn(position) < density_fn(proposal)
        return (jnp.where(is_accepted, proposal, position), log_scale), is_accepted.mean(dtype=jnp.float32)

    def one_round(state: _State, given: tuple[jax.Array, jax.Array]) -> tuple[_State, jax.Array]:
        number, key = given
        (position, log_scale), rates = lax.scan(step, state, jax.random.split(key, _STEPS))
        gain = 4.0 / (1.0 + number) ** 0.6
        log_scale += (gain * (rates.mean() - ACCEPTANCE)).astype(jnp.float32)
        return (position, log_scale), log_scale

    rounds = (jnp.arange(_ROUNDS, dtype=jnp.float32), jax.random.split(jax.random.key(seed), _ROUNDS))
    first = (jnp.full(_CHAINS, start, jnp.float32), jnp.log(jnp.float32(scale)))
    _, found = jax.jit(lambda first, rounds: lax.scan(one_round, first, rounds))(first, rounds)
    return float(jnp.exp(found[_ROUNDS // 2 :].mean()))
