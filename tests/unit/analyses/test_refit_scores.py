"""Means of densities over draws, their errors, those of held-out rows, and outcomes that change their unit."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from bayesmesh.analyses import _refit_scores
from bayesmesh.analyses._likelihood import RowBlock
from bayesmesh.analyses._refit_scores import error_of_sum, log_mean_density, relative_densities

CHAINS, DRAWS, ROWS = 4, 250, 6


def test_the_mean_is_taken_of_densities_and_its_error_is_that_of_repeats() -> None:
    random = np.random.default_rng(0)
    score, error = log_mean_density(np.log(random.gamma(2.0, size=(400, 4, 50))))
    # The mean is 2 and the standard deviation of one draw the root of 2.
    assert score.mean() == pytest.approx(math.log(2), abs=0.02)
    assert error.mean() == pytest.approx(math.sqrt(2) / 2 / math.sqrt(200), rel=0.15)
    assert score.std() == pytest.approx(error.mean(), rel=0.2)


def test_rows_that_share_draws_have_an_error_of_their_sum() -> None:
    values = np.log(np.random.default_rng(1).gamma(2.0, size=(1, 2, 100)))
    same = np.repeat(values, 3, axis=0)
    score, error = log_mean_density(same)
    assert error_of_sum(relative_densities(same, score)) == pytest.approx(3 * error[0])
    assert error_of_sum(np.full((1, 4), np.nan)) == math.inf


def score(monkeypatch: pytest.MonkeyPatch, values: np.ndarray, sizes: tuple[int, ...]) -> _refit_scores.RowScores:
    """Score rows with these log likelihoods (chain, draw, row), in blocks of some sizes."""
    ends = np.cumsum(sizes)
    blocks = [
        RowBlock(end - size, values[..., end - size : end], np.zeros(size), None)
        for end, size in zip(ends, sizes, strict=True)
    ]
    monkeypatch.setattr(_refit_scores, "held_out_blocks", lambda *_: iter(blocks))
    monkeypatch.setattr(_refit_scores, "Shards", lambda _: SimpleNamespace(held_out_clusters=lambda: None))
    found = _refit_scores.score_held_out(SimpleNamespace(num_draws=CHAINS * DRAWS), SimpleNamespace(path=None))
    assert found is not None
    return found


def test_the_error_of_the_sum_is_its_spread_over_posteriors_where_rows_share_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator, found = np.random.default_rng(0), []
    for _ in range(200):
        shared = generator.normal(size=(CHAINS, DRAWS, 1))
        values = -0.5 * (shared + 0.1 * generator.normal(size=(CHAINS, DRAWS, ROWS))) ** 2
        one, parts = score(monkeypatch, values, (ROWS,)), score(monkeypatch, values, (2, 4))
        np.testing.assert_allclose(parts.elpd, one.elpd, rtol=1e-12)
        np.testing.assert_allclose(parts.monte_carlo_error, one.monte_carlo_error, rtol=1e-9)
        found.append((one.elpd.sum(), one.monte_carlo_error))
    sums, errors = np.array(found).T
    np.testing.assert_allclose(errors.mean(), sums.std(), rtol=0.15)
