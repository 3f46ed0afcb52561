"""Softmax regression against SciPy, and what the likelihood cannot tell apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats


@pytest.fixture
def case(make_case):
    return make_case("softmax_regression", prior_scale=1.7)


@pytest.fixture
def latents(case) -> dict[str, jax.Array]:
    return case.model.prior(case.spec).sample(seed=jax.random.key(1))


def test_prior_and_likelihood_are_scipy_s(case) -> None:
    prior, log_likelihood = case.model.prior(case.spec), jax.jit(case.model.log_likelihood)
    features, labels = case.rows["features"] / 16, case.rows["label"]
    for seed in range(20):
        generator = np.random.default_rng(seed)
        weights, biases = 3 * generator.standard_normal((64, 10)), 3 * generator.standard_normal(10)
        latents = {"weights": jnp.asarray(weights), "biases": jnp.asarray(biases)}
        expected = special.log_softmax(features @ weights + biases, axis=1)[np.arange(len(labels)), labels]
        np.testing.assert_allclose(log_likelihood(latents, case.arrays), expected, rtol=1e-10, atol=1e-12)
        both = stats.norm(0, 1.7).logpdf(weights).sum() + stats.norm(0, 1.7).logpdf(biases).sum()
        np.testing.assert_allclose(prior.log_prob(latents), both, rtol=1e-10)


def test_summaries_and_likelihood_ignore_a_constant_added_to_all_classes(case, latents) -> None:
    shift = jax.random.normal(jax.random.key(2), (64, 1))
    moved = {"weights": latents["weights"] + shift, "biases": latents["biases"] + 3.0}
    before, after = (case.model.summaries(z, case.arrays) for z in (latents, moved))
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-9, atol=1e-10)
    likelihoods = [case.model.log_likelihood(z, case.arrays) for z in (latents, moved)]
    np.testing.assert_allclose(likelihoods[0], likelihoods[1], rtol=1e-9, atol=1e-10)


def test_summaries_see_what_the_likelihood_sees(case, latents) -> None:
    for name in latents:
        moved = latents | {name: latents[name].at[..., 0].add(0.5)}
        before, after = (case.model.summaries(z, case.arrays) for z in (latents, moved))
        assert any(not jnp.allclose(before[k], after[k]) for k in before)


def test_features_are_divided_by_their_scale(case, latents) -> None:
    """Zero features leave the biases alone; the largest ones count as 1."""
    zero, full = ({"features": jnp.full((1, 64), v, jnp.uint8)} for v in (0, 16))
    logits = [case.model.predict(latents, rows).logits_parameter()[0] for rows in (zero, full)]
    np.testing.assert_allclose(logits[0], latents["biases"], rtol=1e-12)
    np.testing.assert_allclose(logits[1], latents["biases"] + latents["weights"].sum(0), rtol=1e-12)
