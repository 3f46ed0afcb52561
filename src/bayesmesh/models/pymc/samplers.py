"""Draws from distributions that PyTensor does not convert to JAX, or converts to other distributions.

PyTensor's categorical draws use log p - log(1 - p) in place of log p: with probabilities 0.2 and 0.8 they return the
second in 94% of cases. The same holds for mixtures and ordered outcomes, which are built from them. Its binomial and von
Mises draws need NumPyro, and its Poisson draws are right in float32 for small means alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array
from pymc.distributions.continuous import TruncatedNormalRV, WaldRV
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.link.jax.dispatch.random import jax_sample_fn
from pytensor.tensor.random import basic
from tensorflow_probability.substrates import jax as tfp

Sampler = Callable[..., Array]
"""Function of a key, the size, the dtype and the parameters of a distribution that returns draws."""


def _draws(distribution: type) -> Callable[[Sampler], Sampler]:
    """Register a function that draws from a distribution of PyMC or PyTensor."""

    def register(draw: Sampler) -> Sampler:
        jax_sample_fn.register(distribution, lambda op, node: draw)
        return draw

    return register


@_draws(TruncatedNormalRV)
def _truncated_normal(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    mean, sd, lower, upper = map(jnp.asarray, parameters)
    low, high = (lower - mean) / sd, (upper - mean) / sd
    return mean + sd * jax.random.truncated_normal(key, low, high, shape=size, dtype=jnp.dtype(dtype))


@_draws(basic.WeibullRV)
def _weibull(key: Array, size: Any, dtype: str, shape: ArrayLike) -> Array:
    return jax.random.weibull_min(key, 1.0, jnp.asarray(shape), size, jnp.dtype(dtype))


@_draws(WaldRV)
def _wald(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    mean, shape, shift = map(jnp.asarray, parameters)
    # JAX draws with shape 1. A multiple of an inverse Gaussian is inverse Gaussian, with the same multiple of mean
    # and shape.
    return shift + shape * jax.random.wald(key, mean / shape, size, jnp.dtype(dtype))


@_draws(DiscreteUniformRV)
def _discrete_uniform(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    low, high = jnp.broadcast_arrays(*parameters)
    return jax.random.randint(key, low.shape if size is None else size, low, high + 1, jnp.dtype(dtype))


@_draws(basic.CategoricalRV)
def _categorical(key: Array, size: Any, dtype: str, probabilities: ArrayLike) -> Array:
    return jax.random.categorical(key, jnp.log(jnp.asarray(probabilities)), shape=size).astype(dtype)


@_draws(basic.BinomialRV)
def _binomial(key: Array, size: Any, dtype: str, trials: ArrayLike, probability: ArrayLike) -> Array:
    # In float32, draws from a billion trials spread too far.
    share, number = (jnp.asarray(each, float) for each in (probability, trials))
    return jax.random.binomial(key, number, share, shape=size).astype(dtype)


@_draws(basic.PoissonRV)
def _poisson(key: Array, size: Any, dtype: str, mean: ArrayLike) -> Array:
    # JAX draws in float32, in which counts above a million spread too far.
    means = jnp.asarray(mean, float)
    drawn: Array = tfp.distributions.Poisson(jnp.broadcast_to(means, size or means.shape)).sample(seed=key)
    return drawn.astype(dtype)


@_draws(basic.VonMisesRV)
def _von_mises(key: Array, size: Any, dtype: str, *parameters: ArrayLike) -> Array:
    location, concentration = jnp.broadcast_arrays(*(jnp.asarray(each, dtype) for each in parameters))
    shape = location.shape if size is None else size
    of_each = tfp.distributions.VonMises(jnp.broadcast_to(location, shape), jnp.broadcast_to(concentration, shape))
    drawn: Array = of_each.sample(seed=key)
    return drawn
