"""Exact draws along directions that change no logit of a factorisation  u_i . v_j + a_i + b_j, and of level and noise of ratings.

For any invertible M, users U M and films V M^-T have the same logits. So do films V + 1 c^T with biases a - U c, users
shifted in the same way, and biases a + t and b - t. Under independent normal priors the posterior along such directions
is the prior there. Each move here is a Gibbs or a Metropolis step on the orbit of a one-parameter or commutative group,
under which Lebesgue measure on the parameters is invariant. The map of all latents has determinant 1 for shears and
shifts. It has determinant exp(s (n - m)) if a column of n users is stretched by exp(s) and that of m films is shrunk.

Reference:
    Liu and Sabatti 2000, "Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation", Biometrika 87,
    theorem 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Key

from bayesmesh.models.base import Latents


def redraw_factors(
    key: Key[Array, ""],
    latents: Latents,
    prior_scale: float | Float[Array, ""],
    bias_scale: float | Float[Array, ""] | None = None,
) -> Latents:
    """Return latents with the same logits, after a transition that leaves their prior N(0, prior_scale^2) invariant.

    Args:
        key: a typed key.
        latents: ``user_embeddings`` (n, width), ``film_embeddings`` (m, width), ``user_biases`` (n,) and ``film_biases`` (m,).
        prior_scale: standard deviation of the prior.
        bias_scale: that of the biases, if it differs.
    """
    key_films, key_users, key_shear, key_stretch = jax.random.split(key, 4)
    wide = {k: v.astype(jnp.float64) for k, v in latents.items()}
    users, films = wide["user_embeddings"], wide["film_embeddings"]
    of_users, of_films = wide["user_biases"], wide["film_biases"]
    precision = 1 / jnp.asarray(prior_scale, jnp.float64) ** 2
    of_biases = precision if bias_scale is None else 1 / jnp.asarray(bias_scale, jnp.float64) ** 2
    films, of_users, of_films = _shift(key_films, users, films, of_users, of_films, of_biases, precision / of_biases)
    users, of_films, of_users = _shift(key_users, films, users, of_films, of_users, of_biases, precision / of_biases)
    grams = Grams(users.T @ users * precision, films.T @ films * precision)
    maps, grams = _shear(key_shear, grams)
    stretch = jnp.exp(_log_stretch(key_stretch, grams, len(users), len(films)))
    made = {
        "user_embeddings": users @ maps.users * stretch[None],
        "film_embeddings": films @ maps.films / stretch[None],
        "user_biases": of_users,
        "film_biases": of_films,
    }
    return {k: v.astype(latents[k].dtype) for k, v in made.items()}


class Grams(NamedTuple):
    """Products U^T U and V^T V of standardised factors, or maps of the factors, which multiply them from the right."""

    users: jax.Array
    films: jax.Array


def _normal(
    key: Key[Array, ""], precision: Float[Array, "d d"], linear: Float[Array, " d"], is_free: Float[Array, " d"]
) -> Float[Array, " d"]:
    """Draw the free coordinates of a normal with density exp(-z^T P z / 2 + z^T r); the others are 0."""
    both = is_free[:, None] * is_free[None]
    factor = jnp.linalg.cholesky(precision * both + jnp.diag(1 - is_free))
    noise = jax.random.normal(key, linear.shape, linear.dtype)
    return is_free * (
        cho_solve((factor, True), linear * is_free) + solve_triangular(factor, noise, lower=True, trans=1)
    )


def _shift(
    key: Key[Array, ""],
    fixed: Float[Array, "n k"],
    moved: Float[Array, "m k"],
    of_fixed: Float[Array, " n"],
    of_moved: Float[Array, " m"],
    precision: Float[Array, ""],
    ratio: Float[Array, ""],
) -> tuple[Float[Array, "m k"], Float[Array, " n"], Float[Array, " m"]]:
    """Redraw c and t in  moved + 1 c^T, of_fixed - fixed c - t, of_moved + t; return these three.

    The prior precision of the biases is `precision`, and that of the factors `ratio` times it.
    """
    design = jnp.concatenate([fixed, jnp.ones_like(fixed[:, :1])], axis=1)
    size = design.shape[1]
    of_prior = jnp.append(jnp.broadcast_to(ratio, size - 1), 1.0)
    quadratic = design.T @ design + len(moved) * jnp.diag(of_prior)
    linear = design.T @ of_fixed - of_prior * jnp.append(moved.sum(axis=0), of_moved.sum())
    drawn = _normal(key, precision * quadratic, precision * linear, jnp.ones(size))
    return moved + drawn[None, :-1], of_fixed - design @ drawn, of_moved + drawn[-1]


def _shear(key: Key[Array, ""], grams: Grams) -> tuple[Grams, Grams]:
    """For each column k, redraw s in  u_l + s_l u_k  for all other l, and  v_k - sum of s_l v_l; return maps and products."""
    size = len(grams.users)
    identity = jnp.eye(size)

    def one(k: jax.Array, carry: tuple[Grams, Grams]) -> tuple[Grams, Grams]:
        maps, now = carry
        unit = identity[k]
        precision = now.users[k, k] * identity + now.films
        drawn = _normal(jax.random.fold_in(key, k), precision, now.films[k] - now.users[k], 1 - unit)
        of_users, of_films = identity + jnp.outer(unit, drawn), identity - jnp.outer(drawn, unit)
        after = Grams(of_users.T @ now.users @ of_users, of_films.T @ now.films @ of_films)
        return Grams(maps.users @ of_users, maps.films @ of_films), after

    return jax.lax.fori_loop(0, size, one, (Grams(identity, identity), grams))


def _log_stretch(key: Key[Array, ""], grams: Grams, num_users: int, num_films: int) -> Float[Array, " k"]:
    """Return s for each column by one independence Metropolis step; users are stretched by exp(s), and films shrunk.

    Its log density is (n - m) s - (a exp(2 s) + b exp(-2 s)) / 2, with the squared norms a and b of the columns; proposals
    are normal with its mode and curvature.
    """
    a, b, difference = jnp.diagonal(grams.users), jnp.diagonal(grams.films), num_users - num_films
    # The positive root of a x^2 - (n - m) x - b = 0, where x = exp(2 s), without cancellation for either sign.
    root = jnp.sqrt(difference**2 + 4 * a * b)
    square = (difference + root) / (2 * a) if difference >= 0 else 2 * b / (root - difference)
    mode, precision = 0.5 * jnp.log(square), 2 * (a * square + b / square)
    key_noise, key_accept = jax.random.split(key)
    proposal = mode + jax.random.normal(key_noise, mode.shape, mode.dtype) / jnp.sqrt(precision)

    def log_weight(s: jax.Array) -> jax.Array:
        target = difference * s - 0.5 * (a * jnp.exp(2 * s) + b * jnp.exp(-2 * s))
        return target + 0.5 * precision * (s - mode) ** 2

    log_ratio = log_weight(proposal) - log_weight(jnp.zeros_like(mode))
    accepted = jnp.log(jax.random.uniform(key_accept, mode.shape, mode.dtype)) < log_ratio
    return jnp.where(accepted, proposal, 0)


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
