"""The normal mean against SciPy."""

from __future__ import annotations

import jax
import numpy as np
from scipy import stats


def test_prior_and_likelihood_are_scipy_s(make_case) -> None:
    case = make_case("gaussian", prior_scale=2.5)
    prior, noise = case.model.prior(case.spec), case.spec.constants["noise_scale"]
    log_likelihood = jax.jit(case.model.log_likelihood)
    for mean in 3 * np.random.default_rng(0).standard_normal((20, 2)):
        np.testing.assert_allclose(prior.log_prob({"mean": mean}), stats.norm(0, 2.5).logpdf(mean).sum(), rtol=1e-10)
        expected = stats.norm(mean, noise).logpdf(case.rows["x"]).sum(axis=1)
        np.testing.assert_allclose(log_likelihood({"mean": mean}, case.arrays), expected, rtol=1e-10)
