"""Moved draws score a row as its closed form does; maps are undone by their inverses."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.loo.moment_matching import Affine, match_moments


def test_maps_compose_and_are_undone() -> None:
    random = np.random.default_rng(0)
    first, second = (Affine(random.normal(size=(3, 3)), random.normal(size=3)) for _ in range(2))
    x = random.normal(size=(5, 3))
    np.testing.assert_allclose(second.after(first).apply(x), second.apply(first.apply(x)))
    np.testing.assert_allclose(first.invert(first.apply(x)), x)


def test_the_score_of_an_outlier_is_that_of_the_closed_form() -> None:
    """Normal outcomes with a known error and a flat prior on their mean: one of eleven is far out."""
    y = np.append(np.linspace(-1, 1, 10), 12.0)
    draws = np.random.default_rng(1).normal(y.mean(), 1 / np.sqrt(11), size=(4000, 1))

    def log_density(mean: np.ndarray) -> np.ndarray:
        return np.asarray(stats.norm.logpdf(y, mean).sum(axis=1))

    def log_likelihood(mean: np.ndarray) -> np.ndarray:
        return np.asarray(stats.norm.logpdf(y[-1], mean[:, 0]))

    matched = match_moments(draws, log_density, log_likelihood, 1.0, 0.5)
    assert matched is not None
    exact = stats.norm.logpdf(y[-1], y[:-1].mean(), np.sqrt(1 + 1 / 10))
    assert matched.pareto_k < 0.7
    assert matched.elpd == pytest.approx(exact, abs=max(0.3, 4 * matched.mcse))


def test_a_row_that_needs_no_move_is_left_as_it_is() -> None:
    draws = np.random.default_rng(1).normal(size=(400, 1))
    assert match_moments(draws, lambda x: -0.5 * x[:, 0] ** 2, lambda x: np.zeros(len(x)), 1.0, 0.7) is None
