"""Stacking weights satisfy their optimality condition, and pseudo-BMA+ weights follow the scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from bayesmesh.report.comparison.weights import TOLERANCE, pseudo_bma, stack


@pytest.mark.parametrize(
    ("num_rows", "num_models", "spread"), [(50, 2, 1.0), (2000, 12, 0.3), (300, 30, 5.0), (20, 40, 1.0)]
)
def test_stacking_weights_are_optimal(num_rows: int, num_models: int, spread: float) -> None:
    generator = np.random.default_rng(num_rows)
    scores = spread * generator.standard_normal((num_rows, num_models)) - generator.exponential(1, num_models)
    found = stack(scores)
    # Computed anew, from scores and weights alone.
    density = np.exp(scores - scores.max(1, keepdims=True))
    gradient = (density / (density @ found.weights)[:, None]).mean(0)
    used = found.weights > 0
    assert (found.weights >= 0).all()
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(gradient[used] - 1).max() < TOLERANCE
    assert gradient.max() < 1 + TOLERANCE
    assert found.residual < TOLERANCE
    # No other weights have a higher score.
    best = np.log(density @ found.weights).mean()
    for other in generator.dirichlet(np.full(num_models, 0.3), 50):
        assert np.log(density @ other).mean() <= best + 1e-9


def test_scores_that_differ_by_thousands_of_nats_and_equal_models_are_stacked() -> None:
    generator = np.random.default_rng(1)
    one = generator.standard_normal(200)
    scores = np.stack([one, one, one - 2000, one - generator.exponential(1, 200)], axis=1)
    scores[3, 2] = 0
    found = stack(scores)
    assert found.residual < TOLERANCE
    with pytest.raises(ValueError, match="row 4 has no finite"):
        stack(np.where(np.arange(200)[:, None] == 4, -np.inf, scores))


def test_pseudo_bma_weights_follow_the_scores_and_are_less_certain_than_their_sums() -> None:
    generator = np.random.default_rng(2)
    scores = np.stack([generator.standard_normal(400), generator.standard_normal(400)], axis=1) + np.array([0.1, 0.0])
    weights = pseudo_bma(scores)
    assert weights.sum() == pytest.approx(1)
    plain = softmax(scores.sum(0))
    assert 0.5 < weights.max() < plain.max()
    assert pseudo_bma(scores[:, ::-1])[::-1] == pytest.approx(weights)
