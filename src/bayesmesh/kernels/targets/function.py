"""Plain functions as a target."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import Density, DensityParts, Position

__all__ = ["FunctionTarget"]


class FunctionTarget:
    """Functions of one chain's vector of coordinates, (S,), as a target of kernels.

    Args:
        log_likelihood: its log density, in nats.
        log_prior: a second term; nothing by default.
    """

    def __init__(
        self,
        log_likelihood: Callable[[jax.Array], jax.Array],
        log_prior: Callable[[jax.Array], jax.Array] | None = None,
    ) -> None:
        self._log_likelihood = log_likelihood
        self._log_prior = log_prior or (lambda q: jnp.zeros((), q.dtype))

    @property
    def mask(self) -> Position:
        """Nothing is padded."""
        return Position(None, None)

    def log_density(self, position: Position) -> Density:
        """Return both terms and the gradient of their sum."""
        parts = self.log_density_parts(position)
        gradient = jax.tree.map(jnp.add, parts.prior_gradient, parts.likelihood_gradient)
        return Density(parts.log_prior, parts.log_likelihood, gradient)

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return both terms and the gradient of each."""
        log_prior, prior_gradient = jax.vmap(jax.value_and_grad(self._log_prior))(position.shared)
        value, gradient = jax.vmap(jax.value_and_grad(self._log_likelihood))(position.shared)
        return DensityParts(
            log_prior.astype(jnp.float64),
            value.astype(jnp.float64),
            Position(prior_gradient, None),
            Position(gradient, None),
        )
