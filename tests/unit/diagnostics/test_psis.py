"""Smoothed weights are those of arviz_stats."""

from __future__ import annotations

import numpy as np
from arviz_stats.base import array_stats

from bayesmesh.diagnostics.psis import good_k, smooth_weights


def test_weights_and_k_are_those_of_arviz_stats() -> None:
    generator = np.random.default_rng(1)
    rows = [generator.standard_normal(1000) * scale for scale in (0.1, 1, 3)]
    rows += [-np.log(generator.pareto(shape, 1000)) for shape in (0.8, 1.5)]
    ratios = np.concatenate([np.stack(rows), generator.standard_t(2, (20, 1000))])
    r_eff = np.where(np.arange(len(ratios)) % 2, 1.0, 0.3)
    weights, k = smooth_weights(ratios, r_eff)
    for row, ratio in enumerate(ratios):
        # It takes log likelihoods, which are minus the log ratios.
        expected, expected_k = array_stats.psislw(-ratio, r_eff=r_eff[row])
        np.testing.assert_allclose(weights[row], expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(k[row], expected_k, rtol=0, atol=1e-10)
    assert (k > good_k(1000)).any()
    assert (k < good_k(1000)).any()


def test_tails_that_cannot_be_fitted_keep_their_weights() -> None:
    generator = np.random.default_rng(2)
    few = generator.standard_normal((1, 20))
    weights, k = smooth_weights(few, np.ones(1))
    np.testing.assert_allclose(np.exp(weights), np.exp(few) / np.exp(few).sum())
    assert np.isinf(k).all()
    # One draw has all the weight, or all draws have the same.
    one, same = np.full((1, 1000), -2000.0), np.zeros((1, 1000))
    one[0, 7] = 0
    weights, k = smooth_weights(np.concatenate([one, same]), np.ones(2))
    assert np.isinf(k[0])
    assert k[1] == 0
    np.testing.assert_allclose(np.exp(weights[0, 7]), 1)
    np.testing.assert_allclose(weights[1], -np.log(1000))
    # Differences of rounding have a heavy tail that means nothing.
    rounded = np.round(generator.pareto(0.5, (1, 1000)) * 1e-6, 6).clip(0, 5e-4)
    assert smooth_weights(rounded, np.ones(1))[1] == 0
