"""The measure of which a density of latents on a simplex, or of triangular matrices, is one, where a Jacobian takes another.

TFP's map to a simplex of K entries (`SoftmaxCentered`) has the Jacobian of areas in the K dimensions around it, sqrt(K) times that of the
first K - 1 entries, of which a Dirichlet density is one. Chains do not notice a constant; a marginal likelihood does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.models.base import Latents


def log_volume(bijector: Any, latents: Mapping[str, Any], free: Mapping[str, Any]) -> float:
    """Return what must be added to a Jacobian so that it is that of the entries of latents which are free, in nats.

    Args:
        bijector: map from unconstrained values to latents, which is of each latent by itself.
        latents: latent -> shape and dtype.
        free: latent -> shape and dtype of its unconstrained values.

    Returns:
        A constant; 0 where all latents have as many entries as unconstrained values, or no simplex is among them.
    """
    if not any(_is_simplex(latents[name].shape, free[name].shape) for name in free):
        return 0.0
    at = {name: jnp.zeros(each.shape, jnp.float64) for name, each in free.items()}
    exact = sum(_log_determinant(bijector, at, name) for name in free)
    return exact - float(bijector.forward_log_det_jacobian(at))


def _is_simplex(shape: tuple[int, ...], free: tuple[int, ...]) -> bool:
    return len(shape) == len(free) > 0 and shape[:-1] == free[:-1] and shape[-1] == free[-1] + 1


def _log_determinant(bijector: Any, at: Latents, name: str) -> float:
    """Return the log determinant of the free entries of a latent by its own unconstrained values."""

    def entries(own: jax.Array) -> jax.Array:
        value = bijector.forward({**at, name: own})[name]
        return _free_entries(value, own.shape).ravel()

    matrix = np.asarray(jax.jit(jax.jacfwd(entries))(at[name]))
    size = int(np.prod(at[name].shape))
    return float(np.linalg.slogdet(matrix.reshape(size, size))[1])


def _free_entries(value: jax.Array, free: tuple[int, ...]) -> jax.Array:
    """Return the entries of a latent that determine the others: all but the last of a simplex, or those below the diagonal."""
    if value.shape == free:
        return value
    if _is_simplex(value.shape, free):
        return value[..., :-1]
    rows, columns = np.tril_indices(
        value.shape[-1], -1 if free[-1] < value.shape[-1] * (value.shape[-1] + 1) // 2 else 0
    )
    return value[..., rows, columns]
