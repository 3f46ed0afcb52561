"""Compute the constant between the Jacobian of a map to a simplex and the base measure of the latent's density.

TFP's map to a simplex of K entries (`SoftmaxCentered`) uses the Jacobian of areas in the surrounding K dimensions,
which is sqrt(K) times that of the first K - 1 entries. A Dirichlet density is with respect to the latter. A constant
does not affect chains, but it does affect a marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.models.base import Latents


def log_volume(bijector: Any, free: Mapping[str, Any]) -> float:
    """Return the correction, in nats, that turns a prior's log Jacobian into that of the free entries of its latents.

    Args:
        bijector: map from unconstrained values to latents, which maps each latent separately.
        free: latent -> shape and dtype of its unconstrained values.

    Returns:
        A constant; 0 if none of the latents is a simplex.
    """
    at = {name: jnp.zeros(each.shape, jnp.float64) for name, each in free.items()}
    values = bijector.forward(at)
    if not any(_is_simplex(values[name], at[name].shape) for name in free):
        return 0.0
    exact = sum(log_determinant(bijector, at, name) for name in free)
    return exact - float(bijector.forward_log_det_jacobian(at))


def _is_simplex(value: jax.Array, free: tuple[int, ...]) -> bool:
    """Return whether rows of a latent are probabilities, of which all but one are free; those of a zero-sum latent are not."""
    if not (value.ndim == len(free) > 0 and value.shape[:-1] == free[:-1] and value.shape[-1] == free[-1] + 1):
        return False
    return bool((value > 0).all() and jnp.allclose(value.sum(axis=-1), 1))


def log_determinant(bijector: Any, at: Latents, name: str) -> float:
    """Return the log Jacobian determinant of a latent's free entries with respect to its unconstrained values."""
    shape = at[name].shape
    size, is_simplex = math.prod(shape), _is_simplex(bijector.forward(at)[name], shape)

    def entries(own: jax.Array) -> jax.Array:
        found = bijector.forward({**at, name: own})[name]
        if is_simplex:
            found = found[..., :-1]
        elif found.ndim > len(shape) > 0:
            order = found.shape[-1]
            found = found[(..., *np.tril_indices(order, 0 if shape[-1] == order * (order + 1) // 2 else -1))]
        return found.ravel()

    matrix = np.asarray(jax.jit(jax.jacfwd(entries))(at[name])).reshape(-1, size)
    if len(matrix) == size:
        return float(np.linalg.slogdet(matrix)[1])
    # Zero-sum latents: their density is with respect to lengths and areas in the surrounding space.
    return float(np.linalg.slogdet(matrix.T @ matrix)[1]) / 2
