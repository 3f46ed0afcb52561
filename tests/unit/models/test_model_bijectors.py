"""Tests of the bijectors of priors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._bijectors import bijector_of

tfd = tfp.distributions

_ZERO, _ONE = np.float64(0), np.float64(1)


def _scales() -> Any:
    return tfd.JointDistributionNamed(
        {
            "mean": tfd.Normal(_ZERO, 2.0),
            "spread": tfd.HalfCauchy(_ZERO, 1.0),
            "end": lambda spread: tfd.Uniform(_ZERO, 1.0 + spread),
            "effects": lambda mean, spread: tfd.Sample(tfd.Normal(mean, spread), 3),
        }
    )


def _vectors() -> Any:
    return tfd.JointDistributionNamed(
        {
            "weights": tfd.Dirichlet(jnp.ones(3)),
            "factor": tfd.CholeskyLKJ(3, 2 * _ONE),
            "values": lambda factor, weights: tfd.MultivariateNormalTriL(weights, factor, validate_args=True),
        }
    )


def _valid_at_draws_alone() -> Any:
    return tfd.JointDistributionNamed(
        {
            "low": tfd.Normal(-20 * _ONE, 1.0),
            "high": tfd.Normal(20 * _ONE, 1.0),
            "between": lambda low, high: tfd.Uniform(low, high, validate_args=True),
        }
    )


def _batch_as_event() -> Any:
    slopes = tfd.Normal(jnp.zeros(3), 2.0)
    noise = {"noise": lambda slopes: tfd.LogNormal(0.1 * slopes[0], jnp.ones(len(slopes)))}
    return tfd.JointDistributionNamedAutoBatched({"slopes": slopes, **noise})


@pytest.mark.parametrize("make", [_scales, _vectors, _valid_at_draws_alone, _batch_as_event])
def test_the_bijector_of_dependent_parts_is_that_of_the_distribution(make: Callable[[], Any]) -> None:
    plain, prior = make(), make()
    of_tfp, ours = plain.experimental_default_event_space_bijector(), bijector_of(prior)

    def mapped(prior: Any, bijector: Any, key: jax.Array) -> tuple[Any, ...]:
        drawn = prior.sample(seed=key)
        free = bijector.inverse(drawn)
        return drawn, free, bijector.forward(free), bijector.forward_log_det_jacobian(free), prior.log_prob(drawn)

    # Twice, because the first program is not the trace in which the bijector was made, and the second not that of the first.
    for key in (1, 2):
        found = [
            jax.jit(lambda key, of=of: mapped(*of, key))(jax.random.key(key)) for of in ((plain, of_tfp), (prior, ours))
        ]
        assert jax.tree.structure(found[0]) == jax.tree.structure(found[1])
        for one, other in zip(*map(jax.tree.leaves, found), strict=True):
            np.testing.assert_array_equal(one, other)


def _with_a_bijector_of_its_own() -> Any:
    class Scaled(tfd.JointDistributionNamed):
        def _default_event_space_bijector(self) -> Any:
            maps = {"scale": tfp.bijectors.Scale(jnp.asarray(2.0)), "size": tfp.bijectors.Exp()}
            return tfp.bijectors.JointMap(maps)

    return Scaled({"scale": tfd.Normal(_ZERO, 1.0), "size": lambda scale: tfd.LogNormal(scale, 1.0)})


def test_a_bijector_that_is_not_tfp_s_is_made_outside_of_a_trace() -> None:
    prior = _with_a_bijector_of_its_own()
    bijector, drawn = bijector_of(prior), prior.sample(seed=jax.random.key(0))
    for _ in range(2):
        free = jax.jit(bijector.inverse)(drawn)
    np.testing.assert_allclose(free["scale"], drawn["scale"] / 2)
    np.testing.assert_allclose(free["size"], np.log(drawn["size"]))
