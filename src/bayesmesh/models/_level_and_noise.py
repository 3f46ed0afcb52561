"""Exact draws of the level and the noise of normal ratings: means of biases and of all ratings, and the standard deviation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bayesmesh.models.base import Latents


def redraw_level(
    key: Key[Array, ""], latents: Latents, bias_scale: Float[Array, ""], centre: float, scale: float
) -> Latents:
    """Redraw s and t in  user_biases + s, film_biases + t, mean - s - t,  which leave all expected ratings unchanged.

    Args:
        key: a typed key.
        latents: ``mean`` (), ``user_biases`` (n,) and ``film_biases`` (m,), float64.
        bias_scale: standard deviation of the normal prior of the biases.
        centre, scale: mean and standard deviation of the normal prior of ``mean``.
    """
    users, films, excess = latents["user_biases"], latents["film_biases"], latents["mean"] - centre
    of_bias, of_mean = bias_scale**-2, scale**-2
    precision = jnp.diag(of_bias * jnp.asarray([len(users), len(films)], jnp.float64)) + of_mean
    linear = of_mean * excess - of_bias * jnp.stack([users.sum(), films.sum()])
    factor = jnp.linalg.cholesky(precision)
    white = jax.scipy.linalg.solve_triangular(factor, linear, lower=True) + jax.random.normal(key, (2,), jnp.float64)
    s, t = jax.scipy.linalg.solve_triangular(factor, white, lower=True, trans=1)
    return {**latents, "user_biases": users + s, "film_biases": films + t, "mean": latents["mean"] - s - t}


def redraw_noise(
    key: Key[Array, ""],
    latents: Latents,
    sums: Latents,
    num_rows: int,
    centre: float,
    scale: float,
    noise_scale: Float[Array, ""],
) -> Latents:
    """Redraw ``mean``, and then ``sigma`` by an independence Metropolis step on its square.

    Without the prior, the square has an inverse gamma distribution, from which it is proposed. The acceptance probability
    depends on the prior alone, a bounded weight: the chain does not stick at any state, however extreme.

    Args:
        key: a typed key.
        latents: ``mean`` and ``sigma``, float64.
        sums: ``residual`` and ``square``, the sums over all ratings of the residuals and of their squares.
        num_rows: number of ratings.
        centre, scale: mean and standard deviation of the normal prior of ``mean``.
        noise_scale: scale of the half-normal prior of ``sigma``.
    """
    key_mean, key_sigma = jax.random.split(key)
    mean, sigma, total, square = latents["mean"], latents["sigma"], sums["residual"], sums["square"]
    precision = num_rows / sigma**2 + scale**-2
    expected = (total / sigma**2 - (mean - centre) * scale**-2) / precision
    shift = expected + jax.random.normal(key_mean, (), jnp.float64) / jnp.sqrt(precision)
    square = square - 2 * shift * total + num_rows * shift**2
    key_gamma, key_accept = jax.random.split(key_sigma)
    # The half-normal prior is on sigma and not on its square, hence one degree of freedom fewer.
    proposal = square / (2 * jax.random.gamma(key_gamma, (num_rows - 1) / 2, (), jnp.float64))
    log_ratio = (sigma**2 - proposal) / (2 * noise_scale**2)
    accepted = jnp.log(jax.random.uniform(key_accept, (), jnp.float64)) < log_ratio
    return {**latents, "mean": mean + shift, "sigma": jnp.where(accepted, jnp.sqrt(proposal), sigma)}
