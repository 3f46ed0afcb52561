"""Rankings and held-out scores against a direct computation with all draws in memory."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.options import RecommendationOptions
from bayesmesh.analyses.recommendation import held_out, ranking
from bayesmesh.analyses.recommendation.evaluation import count_watched, recommend
from bayesmesh.analyses.recommendation.ranking import rank_films
from bayesmesh.analyses.recommendation.scores import entropy
from bayesmesh.data.base import Dataset

NUM_USERS, NUM_FILMS, WIDTH = 29, 17, 3
SETTINGS = RecommendationOptions(num_films=6, users=(4, 11), top=3, cutoff=5)
TABLES = ("top", "genres", "users", "scores", "differences", "activity", "calibration", "new_users")


def tables(files):
    return {name: pd.read_csv(files[f"{name}.csv"]) for name in TABLES}


def training(shards):
    return shards.read_rows(0, NUM_USERS)["watched"] > 0


def hidden_matrix(shards):
    indptr, indices = shards.held_out()
    matrix = np.zeros((NUM_USERS, NUM_FILMS), bool)
    matrix[np.repeat(np.arange(NUM_USERS), np.diff(indptr)), indices] = True
    return matrix


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def list_scores(order, hidden, cutoff, information):
    """Recall, NDCG, average precision and novelty of one user, written out."""
    hits = [film in hidden for film in order[:cutoff]]
    gain = sum(1 / math.log2(rank + 2) for rank, hit in enumerate(hits) if hit)
    best = min(cutoff, len(hidden))
    precision = sum(sum(hits[: rank + 1]) / (rank + 1) for rank, hit in enumerate(hits) if hit) / best
    novelty = np.mean([information[film] for film in order[:cutoff]])
    return sum(hits) / len(hidden), gain / sum(1 / math.log2(rank + 2) for rank in range(best)), precision, novelty


def mean_scores(score, seen, hidden, cutoff):
    users = [user for user in range(NUM_USERS) if hidden[user].any()]
    information = -np.log2(np.maximum(seen.sum(axis=0), 0.5) / NUM_USERS)
    per_user = []
    for user in users:
        order = [f for f in np.argsort(-score[user], kind="stable") if not seen[user, f]]
        per_user.append(list_scores(order, set(np.flatnonzero(hidden[user])), cutoff, information))
    return np.array(per_user)


def test_ranking_equals_the_direct_computation(model, posterior, shards, logits):
    users = np.array([4, 11, 28])
    ranking = rank_films(model, posterior, shards, users, "float32", top=3)
    seen = training(shards)[users]
    masked = np.where(seen, -np.inf, logits[:, users])
    best = masked.argmax(axis=-1)
    np.testing.assert_array_equal(ranking.best, best)
    top = np.argsort(-masked, axis=-1, kind="stable")[..., :3]
    for place in range(3):
        expected = np.bincount(best[:, place], minlength=NUM_FILMS) / len(best)
        np.testing.assert_allclose(ranking.p_best[place], expected)
        expected = np.bincount(top[:, place].ravel(), minlength=NUM_FILMS) / len(best)
        np.testing.assert_allclose(ranking.p_top[place], expected)
    probability = sigmoid(logits[:, users])
    np.testing.assert_allclose(ranking.mean, probability.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(ranking.sd, probability.std(axis=0, ddof=1), rtol=1e-4)
    np.testing.assert_array_equal(ranking.watched, seen)
    assert max(len(np.unique(best[:, place])) for place in range(3)) > 1  # else draws could not be told apart


def test_held_out_films_can_be_recommended_and_watched_ones_cannot(model, posterior, shards):
    ranking = rank_films(model, posterior, shards, np.arange(NUM_USERS), "float32", top=NUM_FILMS)
    np.testing.assert_array_equal(ranking.p_top > 0, ~training(shards))
    assert (ranking.p_top[hidden_matrix(shards)] == 1).all()


def test_held_out_scores_equal_the_direct_computation(model, posterior, shards, logits):
    seen, hidden = training(shards), hidden_matrix(shards)
    popularity = seen.sum(axis=0)
    scores = held_out.score_held_out(model, posterior, shards, popularity, "float32", 5)
    average = mean_scores(sigmoid(logits).mean(axis=0), seen, hidden, 5)
    np.testing.assert_allclose(np.stack(scores["posterior_average"].scores, 1), average, atol=1e-12)
    popular = mean_scores(np.tile(popularity, (NUM_USERS, 1)), seen, hidden, 5)
    np.testing.assert_allclose(np.stack(scores["popularity"].scores, 1), popular, atol=1e-12)
    chosen = np.unique(np.linspace(0, len(logits) - 1, held_out.NUM_SINGLE_DRAWS).round().astype(int))
    single = np.mean([mean_scores(logits[draw], seen, hidden, 5) for draw in chosen], axis=0)
    np.testing.assert_allclose(np.stack(scores["single_draw"].scores, 1), single, atol=1e-12)
    # Informative draws, and rankings that differ: else the comparison above proves little.
    means = {name: value.scores.ndcg.mean() for name, value in scores.items()}
    assert means["posterior_average"] > means["single_draw"] > means["random"]
    assert means["posterior_average"] != pytest.approx(means["popularity"])


def test_popularity_never_lists_a_training_film(model, write_posterior, write_shards, latents):
    """Film 0 is the most popular but in every training row; the next film is the one held out, so it comes first."""
    watched = np.zeros((NUM_USERS, NUM_FILMS), np.uint8)
    watched[:, :2] = 1
    shards = write_shards(Dataset({"watched": watched}, kind="interactions"), 0.5)
    hidden = hidden_matrix(shards)
    assert (hidden.sum(axis=1) == 1).all()
    assert 0 < hidden[:, 0].sum() < NUM_USERS
    _, popularity = count_watched(shards)
    scores = held_out.score_held_out(model, write_posterior(latents), shards, popularity, "float32", 1)
    np.testing.assert_array_equal(scores["popularity"].scores.recall, 1.0)


def test_bounded_blocks_give_the_same_tables(model, posterior, shards, files, monkeypatch):
    arguments = (BoundModel(model, shards.spec(), shards), posterior, SETTINGS, files)
    assert recommend(*arguments) == 22
    reference = tables(files)
    monkeypatch.setattr(held_out, "ACCUMULATOR_BYTES", 17 * 4 * 10)
    monkeypatch.setattr(ranking, "WORK_BYTES", 17 * 48)
    for module in (held_out, ranking):
        monkeypatch.setattr(module, "BLOCK_BYTES", 3000)
    assert recommend(*arguments) == 22
    for name, table in tables(files).items():
        pd.testing.assert_frame_equal(table, reference[name], rtol=1e-6)


def test_small_tiles_and_devices_do_not_change_the_scores(model, posterior, shards, monkeypatch):
    popularity = training(shards).sum(axis=0)
    whole = held_out.score_held_out(model, posterior, shards, popularity, "float32", 5)
    device = held_out.jax.local_devices()[0]
    monkeypatch.setattr(held_out, "CPU_TILE_BYTES", 4 * 17 * 4)
    monkeypatch.setattr(held_out.jax, "local_devices", lambda: [device] * 3)
    parts = held_out.score_held_out(model, posterior, shards, popularity, "float32", 5)
    for name, scores in whole.items():
        np.testing.assert_allclose(parts[name].scores, scores.scores)
        np.testing.assert_array_equal(parts[name].listed, scores.listed)


def test_tables_are_consistent(model, posterior, shards, files, dataset):
    recommend(BoundModel(model, shards.spec(), shards), posterior, SETTINGS, files)
    found = tables(files)
    top, users, genres, scores = (found[name] for name in ("top", "users", "genres", "scores"))
    assert list(top.columns) == [
        "user", "user_id", "activity", "rank", "film_id", "title", "genres", "p_best", "p_top", "mean_probability",
        "sd_probability",
    ]  # fmt: skip
    assert list(genres.columns) == ["user", "activity", "genre", "p_best"]
    counts = training(shards).sum(axis=1) + hidden_matrix(shards).sum(axis=1)
    assert users.activity.tolist() == ["most", "least", "chosen", "chosen"]
    assert users.user.tolist() == [counts.argmax(), counts.argmin(), 4, 11]
    assert users.user_id.tolist() == [user + 1 for user in users.user]
    assert users.num_watched.tolist() == counts[users.user].tolist()
    ranking = rank_films(model, posterior, shards, users.user.to_numpy(), "float32", top=3)
    for place, row in enumerate(users.to_dict("records")):
        assert row["entropy"] == pytest.approx(entropy(ranking.p_best[place]))
        assert row["entropy_top"] == pytest.approx(entropy(ranking.p_top[place]))
        assert row["num_films_ever_best"] == len(np.unique(ranking.best[:, place]))
        assert row["entropy_sd"] > 0 or row["entropy"] == 0
        assert row["entropy_minus_first"] == pytest.approx(row["entropy"] - users.entropy[0], abs=1e-12)
        mine = top[top.user == row["user"]]
        unwatched = NUM_FILMS - int(training(shards)[row["user"]].sum())
        assert mine["rank"].tolist() == list(range(1, min(6, unwatched) + 1))
        keys = list(zip(-mine.p_best, -mine.p_top, strict=True))
        assert keys == sorted(keys)
        films = mine.film_id.to_numpy() - 1
        assert not training(shards)[row["user"], films].any()
        np.testing.assert_allclose(mine.mean_probability, ranking.mean[place, films])
        assert mine.genres.tolist() == ["|".join(dataset.columns["genres"][film]) for film in films]
        best_genres = [dataset.columns["genres"][film] for film in ranking.best[:, place]]
        for genre in genres[genres.user == row["user"]].to_dict("records"):
            share = np.mean([genre["genre"] in names for names in best_genres])
            assert genre["p_best"] == pytest.approx(share, abs=1e-12)
    baselines = ["ease", "als", "posterior_mode"]
    assert scores.ranking.tolist() == ["posterior_average", "single_draw", "popularity", "random", *baselines]
    assert (scores.num_users == hidden_matrix(shards).any(axis=1).sum()).all()
    assert sorted(p.name for p in files["top.csv"].parent.iterdir()) == [f"{name}.csv" for name in sorted(TABLES)]
