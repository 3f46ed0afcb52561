"""The covariance that minimises the Fisher divergence of draws and gradients.

For a normal target with precision H the gradient at q is -H q, so that draws with scatter C have gradients with scatter
H C H. The only positive definite S with S (H C H) S = C is the inverse of H, whatever C is. Few draws therefore determine
it, and they need not be distributed as the target.

Reference:
    Seyboldt, Carlson and Carpenter 2026, "Preconditioning Hamiltonian Monte Carlo by minimizing Fisher divergence",
    arXiv:2603.18845.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

FLOOR = 1e-7
"""Regularisation added to both scatters, in units in which a coordinate of draws and of gradients have equal variance.

It shrinks towards the identity in these units where points are few. More of it costs conditioning: at 1e-3, a target with
condition number 1e8 is left with 1e2."""


def fisher_root(draws: Float[Array, "d d"], gradients: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Return R such that S = R R^T is the covariance with S `gradients` S = `draws`.

    Args:
        draws: scatter of draws, positive definite, float64.
        gradients: scatter of gradients.

    >>> draws, gradients = jnp.diag(jnp.array([8.0, 3.0])), jnp.diag(jnp.array([2.0, 3.0]))
    >>> root = fisher_root(draws, gradients)
    >>> (root @ root.T).round(6).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    factor = jnp.linalg.cholesky(gradients)
    values, vectors = jnp.linalg.eigh(factor.T @ draws @ factor)
    # S = L^-T (L^T C L)^(1/2) L^-1, where L L^T is the scatter of gradients.
    stretched = vectors * jnp.maximum(values, 0)[None] ** 0.25
    return jax.scipy.linalg.solve_triangular(factor, stretched, lower=True, trans=1)
