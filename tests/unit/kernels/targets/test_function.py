"""Plain functions as a target."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.targets import FunctionTarget

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
