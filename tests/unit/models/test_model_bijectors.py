"""Tests of the bijectors of priors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._model_bijectors import bijector_of

tfd = tfp.distributions


_ZERO, _ONE = np.float64(0), np.float64(1)


def _named() -> Any:
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


def _coroutine() -> Any:
    @tfd.JointDistributionCoroutineAutoBatched
    def model() -> Iterator[Any]:
        spread = yield tfd.HalfNormal(_ONE, name="spread")
        yield tfd.Normal(jnp.zeros(4), spread, name="effects")

    return model


def _nested() -> Any:
    inner = tfd.JointDistributionNamed({"a": tfd.HalfNormal(_ONE), "b": lambda a: tfd.Normal(_ZERO, a)})
    return tfd.JointDistributionNamed({"inner": inner, "c": lambda inner: tfd.Normal(inner["b"], 1.0)})


@pytest.mark.parametrize("make", [_named, _vectors, _coroutine])
def test_the_bijector_of_dependent_parts_is_that_of_the_distribution(make: Callable[[], Any]) -> None:
    of_tfp, ours = make().experimental_default_event_space_bijector(), bijector_of(make())
    prior = make()
    prior.sample(seed=jax.random.key(0))
    drawn = prior.sample(seed=jax.random.key(1))
    for one, other in zip(jax.tree.leaves(ours.inverse(drawn)), jax.tree.leaves(of_tfp.inverse(drawn)), strict=True):
        np.testing.assert_array_equal(one, other)
    free = of_tfp.inverse(drawn)
    np.testing.assert_array_equal(ours.forward_log_det_jacobian(free), of_tfp.forward_log_det_jacobian(free))


@pytest.mark.parametrize("make", [_named, _vectors, _coroutine, _nested])
def test_a_prior_whose_bijector_is_known_has_the_same_draws_and_density(make: Callable[[], Any]) -> None:
    plain, known = make(), make()
    bijector_of(known)
    draws = [prior.sample(seed=jax.random.key(2)) for prior in (plain, known)]
    assert jax.tree.structure(draws[0]) == jax.tree.structure(draws[1])
    for one, other in zip(*map(jax.tree.leaves, draws), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(plain.log_prob(draws[0]), known.log_prob(draws[0]))


def test_no_draw_is_made_outside_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tfd.Normal._sample_n

    def traced(self: Any, n: Any, seed: jax.Array) -> jax.Array:
        assert isinstance(seed, jax.core.Tracer)
        return plain(self, n, seed)

    monkeypatch.setattr(tfd.Normal, "_sample_n", traced)
    prior = _named()
    bijector_of(prior)
    with pytest.raises(AssertionError):
        prior.sample(seed=jax.random.key(0))
