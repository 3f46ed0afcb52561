"""Plain functions as a target."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Density, DensityParts, Position, Target
from bayesmesh.kernels.targets import FunctionTarget, TemperedTarget

POSITION = Position(jnp.asarray([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]]), None)


def test_both_terms_and_their_gradients_are_those_of_the_functions() -> None:
    target = FunctionTarget(lambda q: -(q[0] ** 2) * q[1], lambda q: -0.5 * jnp.sum(q**2))
    parts, q = target.log_density_parts(POSITION), np.asarray(POSITION.shared)
    np.testing.assert_allclose(parts.log_prior, -0.5 * (q**2).sum(axis=1))
    np.testing.assert_allclose(parts.log_likelihood, -(q[:, 0] ** 2) * q[:, 1])
    np.testing.assert_allclose(parts.prior_gradient.shared, -q)
    np.testing.assert_allclose(
        parts.likelihood_gradient.shared, np.column_stack([-2 * q[:, 0] * q[:, 1], -(q[:, 0] ** 2)])
    )
    density = target.log_density(POSITION)
    np.testing.assert_allclose(density.gradient.shared, parts.prior_gradient.shared + parts.likelihood_gradient.shared)
    assert density.gradient.local is None
    assert target.mask == Position(None, None)


def test_without_a_prior_all_is_likelihood() -> None:
    density = FunctionTarget(lambda q: -0.5 * jnp.sum(q**2)).log_density(POSITION)
    assert not density.log_prior.any()
    np.testing.assert_allclose(density.gradient.shared, -POSITION.shared)


def test_densities_are_float64_and_gradients_are_like_the_position() -> None:
    position = jax.tree.map(lambda x: x.astype(jnp.float32), POSITION)
    density = FunctionTarget(lambda q: -0.5 * jnp.sum(q**2)).log_density(position)
    assert {density.log_prior.dtype, density.log_likelihood.dtype} == {jnp.dtype("float64")}
    assert density.gradient.shared.dtype == jnp.float32


POWER = jnp.asarray([1.0, 0.25, 0.5])
POSITION_TEMPERED = Position(jnp.asarray([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]]), jnp.arange(12.0).reshape(3, 4, 1))


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
    plain, target = Terms().log_density_parts(POSITION_TEMPERED), TemperedTarget(Terms(), POWER)
    parts = target.log_density_parts(POSITION_TEMPERED)
    np.testing.assert_array_equal(parts.log_prior, plain.log_prior)
    np.testing.assert_array_equal(parts.log_likelihood, POWER * plain.log_likelihood)
    jax.tree.map(np.testing.assert_array_equal, parts.prior_gradient, plain.prior_gradient)
    np.testing.assert_array_equal(parts.likelihood_gradient.local, -POWER[:, None, None] * POSITION_TEMPERED.local)


def test_the_parts_sum_to_the_density() -> None:
    target = TemperedTarget(Terms(), POWER)
    parts, density = target.log_density_parts(POSITION_TEMPERED), target.log_density(POSITION_TEMPERED)
    np.testing.assert_array_equal(density.log_prior, parts.log_prior)
    np.testing.assert_array_equal(density.log_likelihood, parts.log_likelihood)
    np.testing.assert_array_equal(density.gradient.shared, -POSITION_TEMPERED.shared)
    np.testing.assert_array_equal(density.gradient.local, parts.likelihood_gradient.local)
