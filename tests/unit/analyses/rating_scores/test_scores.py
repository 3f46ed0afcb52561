"""Scores of hidden ratings against NumPy over the stored draws, simple rules against their normal equations, and the page."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.options import RatingScoresOptions as Options
from bayesmesh.analyses.rating_scores import predictions
from bayesmesh.analyses.rating_scores.predictions import (
    Cells,
    Predicted,
    hidden_cells,
    predict_hidden,
    training_cells,
)
from bayesmesh.analyses.rating_scores.scores import Users, fit_biases, holds, resample, score_ratings
from bayesmesh.data.shards import Shards
from bayesmesh.operations.check.posteriors import make_posterior
from bayesmesh.store.posterior.reader import Posterior


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> tuple[BoundModel, Posterior]:
    """Simulated ratings, a fifth hidden, and six draws from the prior."""
    jax.config.update("jax_enable_x64", True)
    layout, bind = make_posterior(tmp_path_factory.mktemp("results"), "own", "ratings", "rating_factorization", seed=3)
    return bind(), Posterior(layout.posterior)


@pytest.fixture(scope="module")
def files(experiment: tuple[BoundModel, Posterior], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scores")
    found = {name: folder / name for name in ("scores.csv", "coverage.csv")}
    assert "hidden ratings" in score_ratings(*experiment, Options(resamples=200), found)
    return found


def test_draws_are_summed_as_numpy_does(
    experiment: tuple[BoundModel, Posterior], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, posterior = experiment
    cells, plain = hidden_cells(bound), Shards(bound.shards.path).held_out()
    assert isinstance(plain, dict)
    for name, own in zip(("user", "film", "rating"), cells, strict=True):
        np.testing.assert_array_equal(own, plain[name])
    # Blocks that no number of ratings fills.
    monkeypatch.setattr(predictions, "BLOCK_CELLS", 100)
    found = predict_hidden(bound, posterior, cells, 1)
    (z,) = posterior.blocks()
    products = (z["user_embeddings"][:, cells.user] * z["film_embeddings"][:, cells.film]).sum(axis=2)
    mean = z["mean"][:, None] + z["user_biases"][:, cells.user] + z["film_biases"][:, cells.film] + products
    error = mean - cells.rating
    at = stats.norm(mean, z["sigma"][:, None]).cdf(cells.rating)
    expected = Predicted(
        mean.mean(0), (error**2).mean(0), abs(error).mean(0), at.mean(0), at.mean(0), np.sqrt((error**2).mean(1))
    )
    for name, want in expected._asdict().items():
        np.testing.assert_allclose(getattr(found, name), want, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("penalty", [1.0, 10.0])
def test_biases_solve_the_normal_equations(penalty: float) -> None:
    random = np.random.default_rng(4)
    cells = Cells(random.integers(0, 12, 300), random.integers(0, 9, 300), random.normal(3, 1, 300))
    found = fit_biases(cells, 13, 9, penalty)
    design = np.concatenate([np.eye(13)[cells.user], np.eye(9)[cells.film]], axis=1)
    gram = design.T @ design + penalty * np.eye(22)
    expected = np.linalg.solve(gram, design.T @ (cells.rating - cells.rating.mean()))
    # Sums of both are nearer to the solution than a shift between them.
    np.testing.assert_allclose(found.predict(cells), cells.rating.mean() + design @ expected, atol=1e-3)
    assert found.users[12] == 0


def test_users_are_resampled_whole() -> None:
    random = np.random.default_rng(6)
    counts = random.integers(1, 9, 400)
    sums = np.stack([counts * random.normal(2, 0.5, 400), counts.astype(float)])
    found = resample(Users(sums, counts), 2000, seed=1)
    np.testing.assert_array_equal(found[:, 1], 1)
    # The delta method for a ratio of sums over users.
    ratio = sums[0].sum() / counts.sum()
    error = np.sqrt(np.square(sums[0] - ratio * counts).sum()) / counts.sum()
    np.testing.assert_allclose(found[:, 0].std(), error, rtol=0.06)
    np.testing.assert_allclose(found[:, 0].mean(), ratio, atol=0.2 * error)


def test_intervals_of_right_discrete_distributions_hold_their_probability() -> None:
    random = np.random.default_rng(8)
    masses = random.dirichlet(np.ones(5), 20_000)
    edges = np.concatenate([np.zeros((len(masses), 1)), masses.cumsum(axis=1)], axis=1)
    drawn = (random.random((len(masses), 1)) > edges[:, 1:5]).sum(axis=1)
    at = np.arange(len(masses))
    zero = np.zeros(len(masses))
    found = Predicted(zero, zero, zero, edges[at, drawn], edges[at, drawn + 1], zero)
    for probability in (0.5, 0.9):
        np.testing.assert_allclose(holds(found, probability).mean(), probability, atol=0.012)


def test_scores_are_those_of_the_ratings(experiment: tuple[BoundModel, Posterior], files: dict[str, Path]) -> None:
    bound, posterior = experiment
    cells, table = hidden_cells(bound), pd.read_csv(files["scores.csv"]).set_index("prediction")
    found = predict_hidden(bound, posterior, cells, 1)
    np.testing.assert_allclose(table["rmse"]["posterior_average"], np.sqrt(((found.mean - cells.rating) ** 2).mean()))
    np.testing.assert_allclose(table["mae"]["single_draw"], found.absolute.mean())
    training = training_cells(bound)
    np.testing.assert_allclose(table["mae"]["mean"], abs(training.rating.mean() - cells.rating).mean())
    less = table["rmse"] - table["rmse"]["posterior_average"]
    np.testing.assert_allclose(table["rmse_less_average"], less, atol=1e-12)
    for name in ("rmse", "mae", "rmse_less_average", "mae_less_average"):
        assert (table[f"{name}_low"] <= table[name]).all()
        assert (table[name] <= table[f"{name}_high"]).all()
    # Ratings were simulated with biases; draws from the prior know nothing of them.
    assert table["rmse"]["biases"] < table["rmse"]["mean"] < table["rmse"]["single_draw"]
    coverage = pd.read_csv(files["coverage.csv"])
    assert coverage["probability"].tolist() == [0.5, 0.8, 0.9]
    np.testing.assert_allclose(coverage["covered"], [holds(found, p).mean() for p in (0.5, 0.8, 0.9)])
