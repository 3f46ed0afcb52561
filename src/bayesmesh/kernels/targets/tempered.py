"""A target at another temperature: its likelihood to a power."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import Density, DensityParts, Position, Target

__all__ = ["TemperedTarget"]


class TemperedTarget:
    """Prior times likelihood to the power of an inverse temperature.

    Args:
        target: at inverse temperature 1.
        inverse_temperature: (chain,) float64, above 0; a chain has its own.
    """

    def __init__(self, target: Target, inverse_temperature: jax.Array) -> None:
        self.target, self.inverse_temperature = target, inverse_temperature

    @property
    def mask(self) -> Position:
        """The mask of the target."""
        return self.target.mask

    def log_density(self, position: Position) -> Density:
        """Return log prior, tempered log likelihood and the gradient of their sum."""
        parts = self.log_density_parts(position)
        gradient = jax.tree.map(jnp.add, parts.prior_gradient, parts.likelihood_gradient)
        return Density(parts.log_prior, parts.log_likelihood, gradient)

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return log prior, tempered log likelihood and the gradient of each."""
        parts = self.target.log_density_parts(position)

        def temper(x: jax.Array) -> jax.Array:
            power = self.inverse_temperature.astype(x.dtype)
            return x * power.reshape(power.shape + (1,) * (x.ndim - 1))

        likelihood_gradient = jax.tree.map(temper, parts.likelihood_gradient)
        return parts._replace(log_likelihood=temper(parts.log_likelihood), likelihood_gradient=likelihood_gradient)
