"""A target at another temperature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Density, DensityParts, Position, Target
from bayesmesh.kernels.targets import TemperedTarget

POWER = jnp.asarray([1.0, 0.25, 0.5])
POSITION = Position(jnp.asarray([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]]), jnp.arange(12.0).reshape(3, 4, 1))


class Terms(Target):
    """Prior -|shared|^2 / 2 and likelihood -|local|^2 / 2; what tempering needs is their parts."""

    mask = Position(None, jnp.asarray([[1.0], [1.0], [1.0], [0.0]]))

    def log_density_parts(self, position: Position) -> DensityParts:
        zero = jax.tree.map(jnp.zeros_like, position)
        return DensityParts(
            -0.5 * (position.shared**2).sum(axis=1),
            -0.5 * (position.local**2).sum(axis=(1, 2)),
            zero._replace(shared=-position.shared),
            zero._replace(local=-position.local),
        )

    def log_density(self, position: Position) -> Density:
        raise AssertionError("the sum of both cannot be tempered")


def test_the_likelihood_alone_is_tempered_and_every_chain_by_its_own_power() -> None:
    plain, target = Terms().log_density_parts(POSITION), TemperedTarget(Terms(), POWER)
    parts = target.log_density_parts(POSITION)
    np.testing.assert_array_equal(parts.log_prior, plain.log_prior)
    np.testing.assert_array_equal(parts.log_likelihood, POWER * plain.log_likelihood)
    jax.tree.map(np.testing.assert_array_equal, parts.prior_gradient, plain.prior_gradient)
    np.testing.assert_array_equal(parts.likelihood_gradient.local, -POWER[:, None, None] * POSITION.local)


def test_the_parts_sum_to_the_density() -> None:
    target = TemperedTarget(Terms(), POWER)
    parts, density = target.log_density_parts(POSITION), target.log_density(POSITION)
    np.testing.assert_array_equal(density.log_prior, parts.log_prior)
    np.testing.assert_array_equal(density.log_likelihood, parts.log_likelihood)
    np.testing.assert_array_equal(density.gradient.shared, -POSITION.shared)
    np.testing.assert_array_equal(density.gradient.local, parts.likelihood_gradient.local)
