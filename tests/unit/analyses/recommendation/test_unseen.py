"""Users whom the chains have not seen: their split, lists, intervals and calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.fold_in import watches
from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.options import RecommendationOptions
from bayesmesh.analyses.recommendation import held_out
from bayesmesh.analyses.recommendation.calibration import (
    calibrate,
)
from bayesmesh.analyses.recommendation.evaluation import recommend
from bayesmesh.analyses.recommendation.held_out import hidden_matrix, score_unseen
from bayesmesh.analyses.recommendation.tables import difference_table
from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.data.sources.films import Options as FilmOptions
from bayesmesh.data.sources.films import Source
from bayesmesh.models.matrix_factorization import MatrixFactorization, Options
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.posterior.reader import Posterior

USERS, FILMS, WIDTH, DRAWS = 900, 50, 2, 40
SPLIT = DataSettings(held_out_fraction=0.3, held_out_users=0.5)


@pytest.fixture(scope="module")
def club() -> Dataset:
    return Source(FilmOptions(num_users=USERS, num_films=FILMS, width=WIDTH, offset=-1.0)).read(Path())


@pytest.fixture(scope="module")
def split(club: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    layout = DataLayout(tmp_path_factory.mktemp("data"), "club", "split")
    manifest = shard(club, SPLIT, layout)
    assert manifest["counts"]["unseen_users"] == USERS // 2
    return Shards(layout.shards)


@pytest.fixture(scope="module")
def draws(club: Dataset) -> FactorDraws:
    """Draws that equal the true films, each turned by itself: then new users' posteriors are exact."""
    generator = np.random.default_rng(1)
    turns = np.linalg.qr(generator.normal(size=(DRAWS, WIDTH, WIDTH)))[0]
    films = np.asarray(club.truth["film_embeddings"]) @ turns
    biases = np.tile(club.truth["film_biases"], (DRAWS, 1))
    return FactorDraws(films, biases, np.zeros(0), np.zeros(0))


def test_users_leave_with_all_that_is_theirs(split: Shards, club: Dataset) -> None:
    unseen, watched = split.unseen(), club.rows["watched"][:]
    assert unseen is not None
    stays = np.setdiff1d(np.arange(USERS), unseen.rows)
    np.testing.assert_array_equal(split.read_rows(0, split.num_rows)["watched"], watched[stays])
    ids = np.array(club.columns["user_id"])
    assert split.columns["user_id"] == ids[stays].tolist()
    assert split.columns["unseen_user_id"] == ids[unseen.rows].tolist()
    np.testing.assert_array_equal(split.truth()["user_biases"], club.truth["user_biases"][stays])
    np.testing.assert_array_equal(split.truth()["film_biases"], club.truth["film_biases"])
    np.testing.assert_array_equal(split.unseen_truth()["user_embeddings"], club.truth["user_embeddings"][unseen.rows])
    hidden = hidden_matrix(unseen.hidden, np.arange(len(unseen.rows)), FILMS)
    assert not (hidden & (unseen.given > 0)).any()
    np.testing.assert_array_equal(hidden | (unseen.given > 0), watched[unseen.rows] > 0)
    assert 0.25 < hidden.sum() / watched[unseen.rows].sum() < 0.35
    assert split.held_out() is None
    split.verify()


def true_logits(club: Dataset, rows: np.ndarray) -> np.ndarray:
    truth = club.truth
    product = truth["user_embeddings"][rows] @ truth["film_embeddings"].T
    return product + truth["user_biases"][rows, None] + truth["film_biases"]


def test_intervals_of_true_logits_and_of_counts_cover(club: Dataset, split: Shards, draws: FactorDraws) -> None:
    """The films are known, so nine tenths are covered: 450 users, whose logits depend on each other, within four errors."""
    unseen = split.unseen()
    assert unseen is not None
    watched = club.rows["watched"][:][unseen.rows] > 0
    found = calibrate(draws, watched, 1.0, 0, true_logits(club, unseen.rows))
    covered, error = found.covered_logits.mean(), found.covered_logits.std() / np.sqrt(len(watched))
    assert error < 0.01
    assert abs(covered - 0.9) < 4 * error
    inside = (found.count_pit > 0.05) & (found.count_pit < 0.95)
    assert abs(inside.mean() - 0.9) < 4 * np.sqrt(0.09 / len(watched))
    # Every bin is right within four errors, and their cells are a fifth of all.
    for each in found.bins:
        assert abs(each.watched - each.predicted) < 4 * each.difference_se
    assert sum(each.num_cells for each in found.bins) == pytest.approx(watched.size / 5, rel=0.02)


def test_calibration_notices_a_prior_that_is_too_narrow(club: Dataset, split: Shards, draws: FactorDraws) -> None:
    unseen = split.unseen()
    assert unseen is not None
    watched = club.rows["watched"][:][unseen.rows] > 0
    found = calibrate(draws, watched, 0.3, 0, true_logits(club, unseen.rows))
    assert found.covered_logits.mean() < 0.8


def test_lists_of_new_users_beat_popularity_and_do_not_depend_on_tiles_or_cores(
    split: Shards, draws: FactorDraws, monkeypatch: pytest.MonkeyPatch
) -> None:
    unseen = split.unseen()
    assert unseen is not None
    popularity = split.read_rows(0, split.num_rows)["watched"].sum(axis=0, dtype=np.int64)
    arguments = (draws, unseen, 1.0, popularity, split.num_rows, 10)
    found = score_unseen(*arguments)
    average, popular = (found.rankings[name].scores.ndcg for name in ("posterior_average", "popularity"))
    difference = average - popular
    assert difference.mean() > 4 * difference.std() / np.sqrt(len(difference))
    table = difference_table(found.rankings, 0).set_index(["ranking", "score"])
    row = table.loc["popularity", "ndcg"]
    assert row["low"] < row["difference"] < row["high"]
    assert row["low"] > 0
    np.testing.assert_allclose(row["difference"], difference.mean())
    monkeypatch.setattr(watches.os, "sched_getaffinity", lambda pid: {0})
    again = score_unseen(*arguments).rankings["posterior_average"]
    np.testing.assert_array_equal(again.scores.ndcg, average)
    # Other tiles have other random numbers, so the lists agree but for Monte Carlo error.
    monkeypatch.setattr(held_out, "SUM_BYTES", 4 * FILMS * watches.NUM_RUNS * 100)
    tiled = score_unseen(*arguments).rankings["posterior_average"]
    assert len(tiled.scores.ndcg) == len(average)
    assert abs(tiled.scores.ndcg.mean() - average.mean()) < 0.02
    np.testing.assert_array_equal(tiled.listed.sum(), 10 * len(average))


def test_the_analysis_writes_tables_of_new_users(
    split: Shards,
    club: Dataset,
    draws: FactorDraws,
    write_posterior: Callable[[Mapping[str, np.ndarray]], Posterior],
    files: dict[str, Path],
) -> None:
    stays = {name: np.asarray(value) for name, value in split.truth().items()}
    latents = {name: np.tile(value, (1, 3, *[1] * value.ndim)).astype("f4") for name, value in stays.items()}
    model, settings = (
        MatrixFactorization(Options(width=WIDTH), split.spec()),
        RecommendationOptions(draws=3, cutoff=5, baselines=False),
    )
    recommend(BoundModel(model, split.spec(), split), write_posterior(latents), settings, files)
    about = pd.read_csv(files["new_users.csv"]).iloc[0]
    assert (about["num_users"], about["num_draws"]) == (USERS // 2, 3)
    assert 0.5 < about["acceptance"] <= 1
    assert about["logits_covered"] > 0
    assert len(pd.read_csv(files["calibration.csv"])) > 3
    scores = pd.read_csv(files["scores.csv"]).set_index("ranking")
    assert scores.loc["posterior_average", "ndcg"] > scores.loc["popularity", "ndcg"] > scores.loc["random", "ndcg"]
    activity = pd.read_csv(files["activity.csv"])
    of_average = activity[activity["ranking"] == "posterior_average"]
    assert of_average["num_users"].sum() == scores.loc["posterior_average", "num_users"]
    assert (of_average["films_from"].to_numpy()[1:] > of_average["films_to"].to_numpy()[:-1]).all()
    mean = (of_average["ndcg"] * of_average["num_users"]).sum() / of_average["num_users"].sum()
    assert mean == pytest.approx(scores.loc["posterior_average", "ndcg"])
