"""Ranks, quantiles and the order of half chains against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesmesh.diagnostics.ranks import order_draws, rank_normalise, tail_indicator


@pytest.mark.parametrize("num_draws", [10, 11])
def test_halves_leave_out_the_middle_draw(num_draws) -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, num_draws))
    ordered = order_draws(x)
    np.testing.assert_array_equal(ordered.halves, np.concatenate([x[:, :, :5], x[:, :, -5:]], axis=1))
    np.testing.assert_array_equal(ordered.values, np.sort(ordered.halves.reshape(3, -1), axis=1))
    np.testing.assert_array_equal(ordered.all_values, np.sort(x.reshape(3, -1), axis=1))


def test_ties_share_their_average_rank() -> None:
    x = np.random.default_rng(0).integers(0, 6, size=(4, 2, 20)).astype(float)
    ordered = order_draws(x)
    rank = stats.rankdata(ordered.halves.reshape(4, -1), method="average", axis=1)
    expected = stats.norm.ppf((rank - 3 / 8) / (40 + 1 / 4)).reshape(ordered.halves.shape)
    np.testing.assert_allclose(rank_normalise(ordered), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("probability", [0.05, 0.31, 0.5, 0.77, 0.95])
@pytest.mark.parametrize("num_draws", [4, 9, 30])
def test_indicator_counts_draws_that_equal_the_quantile(probability, num_draws) -> None:
    # Neighbouring floats: where the quantile is rounded to decides which draws are at most it.
    steps = np.random.default_rng(num_draws).integers(0, 40, size=(50, 3, num_draws))
    x = 1.0 + np.finfo(float).eps * steps
    ordered = order_draws(x)
    quantile = np.quantile(x.reshape(50, -1), probability, axis=1)
    np.testing.assert_array_equal(tail_indicator(ordered, probability), ordered.halves <= quantile[:, None, None])
