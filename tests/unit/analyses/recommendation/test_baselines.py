"""EASE and implicit ALS against their definitions, and a mode of the posterior."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.recommendation import baselines
from bayesmesh.analyses.recommendation.baselines import (
    als,
    ease,
    fit_baselines,
    gram_matrix,
    posterior_mode,
    solve_factors,
)
from bayesmesh.data.sources.films import Options, Source


@pytest.fixture(scope="module")
def watched() -> np.ndarray:
    return Source(Options(num_users=150, num_films=25, width=2, offset=-1.0)).read(Path()).rows["watched"][:]


def test_ease_regresses_each_film_on_the_others(watched: np.ndarray) -> None:
    x = watched.astype(float)
    score = ease(gram_matrix(scipy.sparse.csr_matrix(x.astype("f4")), block_rows=40), 20.0)
    new = np.random.default_rng(1).random((4, 25)) < 0.3
    found = score(new)
    for film in (0, 11, 24):
        others = np.delete(np.arange(25), film)
        gram = x[:, others].T @ x[:, others] + 20 * np.eye(24)
        weights = np.linalg.solve(gram, x[:, others].T @ x[:, film])
        np.testing.assert_allclose(found[:, film], new[:, others] @ weights, atol=1e-4)


def test_als_solves_the_weighted_least_squares_of_each_row(watched: np.ndarray) -> None:
    others = np.random.default_rng(2).normal(size=(25, 3)).astype("f4")
    found = solve_factors(scipy.sparse.csr_matrix(watched.astype("f4")), others, 4.0, 2.0)
    for row in (0, 70):
        confidence = 1 + 4.0 * watched[row]
        system = (others * confidence[:, None]).T @ others + 2.0 * np.eye(3)
        np.testing.assert_allclose(
            found[row], np.linalg.solve(system, others.T @ (confidence * watched[row])), rtol=1e-3
        )
    assert not solve_factors(scipy.sparse.csr_matrix((1, 25), dtype="f4"), others, 4.0, 2.0).any()


def test_als_scores_watched_films_higher(watched: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "ALS_FACTORS", 6)
    score = als(scipy.sparse.csr_matrix(watched.astype("f4")), 4.0, 1.0, 0)(watched)
    assert score[watched > 0].mean() > score[watched == 0].mean() + 0.3


def test_settings_are_those_that_rank_hidden_films_best(watched: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = scipy.sparse.csr_matrix(watched.astype("f4"))
    monkeypatch.setattr(baselines, "EASE_PENALTIES", (1e-3, 50.0, 1e9))
    monkeypatch.setattr(baselines, "ALS_SETTINGS", ((1.0, 1e9), (2.0, 5.0)))
    fitted = fit_baselines(matrix, 10, 0)
    assert fitted["ease"].settings == "penalty 50"
    assert fitted["als"].settings == "weight 2, penalty 5, 48 factors"
    # The final fit has all films back.
    np.testing.assert_allclose(fitted["ease"].score(watched), ease(gram_matrix(matrix), 50.0)(watched), atol=1e-6)


def test_too_many_films_leave_ease_out(
    watched: np.ndarray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(baselines, "MAX_EASE_FILMS", 24)
    monkeypatch.setattr(baselines, "ALS_SETTINGS", ((2.0, 5.0),))
    assert list(fit_baselines(scipy.sparse.csr_matrix(watched.astype("f4")), 10, 0)) == ["als"]
    assert "EASE is left out: 25 films, at most 24" in caplog.text


def test_the_posterior_mode_has_no_gradient(watched: np.ndarray) -> None:
    """At the mode of the films, that of the users has a gradient of zero by construction, and so must the films'."""
    generator = np.random.default_rng(3)
    draws = FactorDraws(generator.normal(size=(1, 25, 2)), np.zeros((1, 25)), np.zeros(0), np.zeros(0))
    found = posterior_mode(draws, watched > 0, 1.0)
    sweeps, change = found.settings.split(" sweeps, last relative change ")
    assert int(sweeps) <= 25
    assert float(change) < 0.05
    logits = found.score(watched)
    other = posterior_mode(draws._replace(film_embeddings=-draws.film_embeddings), watched > 0, 1.0).score(watched)
    # The sign of the embeddings is arbitrary; the mode's logits are not.
    np.testing.assert_allclose(logits, other, atol=0.02)
    probability = 1 / (1 + np.exp(-logits))
    # Maximising over biases matches counts up to the pull of the prior, a bias of at most a few.
    assert np.abs((probability - watched).sum(axis=0)).max() < 4
    assert np.abs((probability - watched).sum(axis=1)).max() < 4
