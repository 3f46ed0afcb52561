"""Targets other than models: plain functions, any target at another temperature, and units."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayesmesh.kernels.base import DensityParts, Position, Target


class FunctionTarget(Target):
    """Functions of one chain's vector of coordinates, (S,), as a target of kernels.

    Args:
        log_likelihood: its log density, in nats.
        log_prior: a second term; nothing by default.
    """

    def __init__(
        self,
        log_likelihood: Callable[[Float[Array, " S"]], Float[Array, ""]],
        log_prior: Callable[[Float[Array, " S"]], Float[Array, ""]] | None = None,
    ) -> None:
        self._log_likelihood = log_likelihood
        self._log_prior = log_prior or (lambda q: jnp.zeros((), q.dtype))

    @property
    def mask(self) -> Position:
        """Nothing is padded."""
        return Position(None, None)

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return both terms and the gradient of each."""
        log_prior, prior_gradient = jax.vmap(jax.value_and_grad(self._log_prior))(position.shared)
        value, gradient = jax.vmap(jax.value_and_grad(self._log_likelihood))(position.shared)
        gradients = Position(prior_gradient, None), Position(gradient, None)
        return DensityParts(log_prior.astype(jnp.float64), value.astype(jnp.float64), *gradients)


class TemperedTarget(Target):
    """Prior times likelihood to the power of an inverse temperature.

    Args:
        target: at inverse temperature 1.
        inverse_temperature: (chain,) float64, above 0; a chain has its own.
    """

    def __init__(self, target: Target, inverse_temperature: Float[Array, " chain"]) -> None:
        self.target, self.inverse_temperature = target, inverse_temperature

    @property
    def mask(self) -> Position:
        """The mask of the target."""
        return self.target.mask

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return log prior, tempered log likelihood and the gradient of each."""
        parts = self.target.log_density_parts(position)

        def temper(x: jax.Array) -> jax.Array:
            power = self.inverse_temperature.astype(x.dtype)
            return x * power.reshape(power.shape + (1,) * (x.ndim - 1))

        likelihood_gradient = jax.tree.map(temper, parts.likelihood_gradient)
        return parts._replace(log_likelihood=temper(parts.log_likelihood), likelihood_gradient=likelihood_gradient)
