"""Simulated and embedded sources: films, their ratings, gaussian, digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.data.sharding import check_counts
from bayesmesh.data.sources import digits, films, gaussian, hidden_markov, ratings

NOWHERE = Path("nowhere")


def test_gaussian_rows_scatter_about_their_mean() -> None:
    data = gaussian.Source(gaussian.Options(num_rows=20000, dimension=3, noise_scale=0.5)).read(NOWHERE)
    x, mean = data.rows["x"], data.truth["mean"]
    assert (x.shape, x.dtype, mean.shape) == ((20000, 3), np.float64, (3,))
    assert (np.abs(x.mean(axis=0) - mean) < 5 * 0.5 / np.sqrt(20000)).all()
    np.testing.assert_allclose((x - mean).std(axis=0), 0.5, rtol=0.03)
    assert data.constants == {"noise_scale": 0.5, "dimension": 3}


def test_films_are_watched_as_their_logits_say() -> None:
    data = films.Source(films.Options(num_users=400, num_films=300, width=3, offset=-1.0)).read(NOWHERE)
    truth, watched = data.truth, data.rows["watched"]
    logits = truth["user_embeddings"] @ truth["film_embeddings"].T
    logits = logits + truth["user_biases"][:, None] + truth["film_biases"]
    probability = 1 / (1 + np.exp(-logits))
    assert (watched.shape, watched.dtype) == ((400, 300), np.uint8)
    error = (watched - probability).sum() / np.sqrt((probability * (1 - probability)).sum())
    assert abs(error) < 4
    # Films with a high logit are watched, not just as many as expected.
    assert watched[logits > 3].mean() > 0.95
    assert watched[logits < -3].mean() < 0.05
    assert abs(truth["film_biases"].mean() + 1) < 0.3


def test_ratings_are_as_truth_and_noise_say() -> None:
    options = ratings.Options(num_users=500, num_films=90, width=3, noise=0.3, factor_scale=0.8, mean_ratings=30)
    data = ratings.Source(options).read(NOWHERE)
    user, film, rating = (data.rows[name] for name in ("user", "film", "rating"))
    truth = data.truth
    products = (truth["user_embeddings"][user] * truth["film_embeddings"][film]).sum(axis=1)
    residual = rating - truth["mean"] - truth["user_biases"][user] - truth["film_biases"][film] - products
    assert abs(residual.mean()) < 5 * 0.3 / np.sqrt(len(rating))
    np.testing.assert_allclose(residual.std(), 0.3, rtol=0.03)
    np.testing.assert_allclose(products.std(), 0.8, rtol=0.25)
    # Every user rates, no film twice, and the first films most.
    assert set(user) == set(range(500))
    assert len(set(zip(user.tolist(), film.tolist(), strict=True))) == len(user)
    assert (film < 45).mean() > 0.65


def test_rounded_ratings_are_stars() -> None:
    data = ratings.Source(ratings.Options(stars=5)).read(NOWHERE)
    assert (data.rows["rating"].dtype, set(data.rows["rating"])) == (np.uint8, {1, 2, 3, 4, 5})
    assert not data.truth


def test_digits_are_split_in_proportion() -> None:
    data = digits.Source(digits.Options(test_fraction=0.25, seed=3)).read(NOWHERE)
    assert check_counts(data)["rows"] + check_counts(data)["test_rows"] == 1797
    features, labels = data.rows["features"], data.rows["label"]
    assert (features.shape[1], features.dtype, labels.dtype) == (64, np.uint8, np.uint8)
    assert features.max() == data.constants["feature_scale"] == 16
    train, test = np.bincount(labels), np.bincount(data.test_rows["label"])
    np.testing.assert_allclose(test / (train + test), 0.25, atol=0.004)


def test_hidden_markov_processes_are_those_of_the_gallery() -> None:
    """The order of all draws of one generator, written out: first state, steps, all emissions; one process unused."""
    transition = np.array([[0.9, 0.09, 0.01], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
    generator = np.random.default_rng(104109109)
    expected = []
    for _ in range(71):
        state = generator.choice(3, p=[0.9, 0.09, 0.01])
        path = [state := generator.choice(3, p=transition[state]) if step else state for step in range(51)]
        expected.append(generator.normal((np.array(path) + 1) * 1.15, 0.15))
    data = hidden_markov.Source(hidden_markov.Options()).read(NOWHERE)
    assert data.rows["emissions"].tobytes() == np.array(expected[1:]).tobytes()
    few = hidden_markov.Source(hidden_markov.Options(num_processes=5)).read(NOWHERE)
    assert few.rows["emissions"].tobytes() == data.rows["emissions"][:5].tobytes()
