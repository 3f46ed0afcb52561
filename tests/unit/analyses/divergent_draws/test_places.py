"""The test of where divergences lie keeps its level for series that depend on their past."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.divergent_draws.places import p_value_of_shifts


def series(generator: np.random.Generator, correlation: float, num: int = 2000) -> np.ndarray:
    noise = generator.standard_normal(num) * np.sqrt(1 - correlation**2)
    values = noise / np.sqrt(1 - correlation**2)
    for i in range(1, num):
        values[i] = correlation * values[i - 1] + noise[i]
    return values


@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_p_values_are_uniform_where_divergences_have_nothing_to_do_with_the_latent(correlation: float) -> None:
    generator = np.random.default_rng(8)
    found = []
    for _ in range(100):
        ranks = stats.rankdata(series(generator, correlation)) / 2001
        # Divergences come in runs, as they do in a slow chain.
        is_divergent = series(generator, correlation) > 2
        found.append(p_value_of_shifts(ranks, is_divergent))
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) < 0.05) < 0.12


def test_one_series_that_decides_the_other_is_seen_and_a_constant_one_is_not() -> None:
    ranks = stats.rankdata(series(np.random.default_rng(2), 0.5)) / 2001
    assert p_value_of_shifts(ranks, ranks < 0.02) < 1e-6
    assert p_value_of_shifts(np.full(50, 0.5), np.arange(50) < 3) == 1.0
