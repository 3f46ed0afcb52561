"""New users' latents given ratings: against the closed form, and for ordered ratings against a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.ratings import (
    GivenRatings,
    RatingScales,
    draw_normal,
    expected_ratings,
    fold_in_run,
)
from bayesmesh.analyses.fold_in.watches import films_of

SCALES = RatingScales(0.7, 0.4, np.zeros(0))
EMBEDDINGS = np.array([[1.0], [-0.5], [2.0], [0.3]])
BIASES = np.array([0.2, -0.1, 0.0, 0.4])
ALIKE = 6_000
"""Users with the same ratings, whose draws are draws of one posterior."""


def given(film: list[int], value: list[float], users: int = ALIKE) -> GivenRatings:
    return GivenRatings(
        np.tile(film, users), np.tile(np.asarray(value, float), users), np.arange(users + 1) * len(film)
    )


def test_normal_ratings_have_the_posterior_of_the_closed_form() -> None:
    """By conditioning the joint normal of latents and ratings, which needs no precision."""
    film, value, mean, sigma = [0, 2, 3], [4.0, 1.5, 3.0], 2.5, 0.6
    design = np.column_stack([EMBEDDINGS[film], np.ones(3)])
    prior = np.diag([0.7**2, 0.4**2])
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + sigma**2 * np.eye(3))
    centre = gain @ (np.array(value) - mean - BIASES[film])
    covariance = prior - gain @ design @ prior
    random = np.random.default_rng(1)
    found = draw_normal(films_of(EMBEDDINGS, BIASES), given(film, value), SCALES, mean, sigma, random)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (found.latents - centre).T)
    for z in (*white, (white[0] + white[1]) / np.sqrt(2)):
        assert stats.kstest(z, "norm").pvalue > 1e-4
    np.testing.assert_allclose(found.mode[0], centre, rtol=1e-5)


def test_a_user_without_ratings_has_the_prior() -> None:
    nothing = GivenRatings(np.zeros(0, np.int64), np.zeros(0), np.zeros(ALIKE + 1, np.int64))
    found = draw_normal(films_of(EMBEDDINGS, BIASES), nothing, SCALES, 3.0, 0.6, np.random.default_rng(2))
    for z, scale in zip(found.latents.T, (0.7, 0.4), strict=True):
        assert stats.kstest(z / scale, "norm").pvalue > 1e-4


BASELINE = np.array([0.1, 0.2, 0.3, 0.4])
LEVELS = np.array([1.0, 2.0, 4.0, 5.0])


def masses(predictor: np.ndarray) -> np.ndarray:
    """Probabilities of the levels, differences of logistic functions."""
    total = np.cumsum(BASELINE)[:-1]
    at_most = 1 / (1 + (1 - total) / total * np.exp(np.asarray(predictor)[..., None]))
    return np.diff(at_most, axis=-1, prepend=0, append=1)


def test_expected_ordered_ratings_are_those_of_their_probabilities() -> None:
    predictor = np.linspace(-8, 8, 9)
    found = expected_ratings(predictor, {"baseline": BASELINE}, SCALES._replace(levels=LEVELS))
    np.testing.assert_allclose(found, masses(predictor) @ LEVELS, rtol=1e-10)


@pytest.mark.parametrize(("film", "level"), [([0, 2, 3], [3.0, 0.0, 2.0]), ([1], [0.0])])
def test_ordered_ratings_have_the_posterior_of_a_grid(film: list[int], level: list[float]) -> None:
    scales = SCALES._replace(levels=LEVELS)
    draws = FactorDraws(EMBEDDINGS[None], BIASES[None], np.zeros(0), np.zeros(0), {"baseline": BASELINE[None]})
    (found,) = fold_in_run(draws, range(1), given(film, level), scales)
    axes = np.linspace(-4, 4, 241)
    u, a = np.meshgrid(axes, axes, indexing="ij")
    log = stats.norm(0, 0.7).logpdf(u) + stats.norm(0, 0.4).logpdf(a)
    for j, k in zip(film, level, strict=True):
        log += np.log(masses(u * EMBEDDINGS[j, 0] + a + BIASES[j])[..., int(k)])
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    for column, x in enumerate((u, a)):
        mean = (weight * x).sum()
        sd = np.sqrt((weight * (x - mean) ** 2).sum())
        drawn = found.latents[:, column]
        assert abs(drawn.mean() - mean) < 4.5 * sd / np.sqrt(ALIKE)
        assert abs(drawn.std() / sd - 1) < 4.5 / np.sqrt(ALIKE)
    assert found.acceptance.mean() > 0.5
