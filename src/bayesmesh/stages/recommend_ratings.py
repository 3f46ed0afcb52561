"""Rank films for one user by the ratings to expect, from the stored posterior of an experiment of ratings; without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses._rating_fold_in import GivenRatings, RatingScales, expected_ratings, fold_in_run, scales_of
from bayesmesh.analyses.recommendation.film_draws import FactorDraws, read_factors
from bayesmesh.analyses.recommendation.film_list import ListedFilm, list_films
from bayesmesh.analyses.recommendation.new_user import NUM_PROPOSALS, known_user
from bayesmesh.analyses.recommendation.rated_films import Scale, find_rated, read_rated
from bayesmesh.analyses.recommendation.shown_list import FilmList
from bayesmesh.data.base import Column, Variable
from bayesmesh.data.shards import Shards
from bayesmesh.stages.film_lists import (
    MAX_DRAWS,
    MAX_DRAWS_OF_KNOWN,
    SEED,
    Asked,
    Opened,
    doubts,
    draws_of,
    find_user,
    list_rows,
    most_draws,
)
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior_reader import Posterior, open_posterior

VALUE = "expected rating"


class Ratings(NamedTuple):
    """The ratings of an experiment.

    Attributes:
        user, film: of each rating of the training rows, codes.
        hidden_user, hidden_film: the same of the held-out rows.
        columns: ids, titles and genres of the films, as far as the dataset has them.
        about: what the numbers of the column of ratings are.
        scale: ratings that a new user may give, in the unit of the dataset.
        scales: of the model.
    """

    user: np.ndarray
    film: np.ndarray
    hidden_user: np.ndarray
    hidden_film: np.ndarray
    columns: Mapping[str, Column]
    about: Variable
    scale: Scale
    scales: RatingScales


def for_user(layout: ExperimentLayout, opened: Opened, user_id: str, asked: Asked) -> FilmList:
    """Return films for a user of the data, from the user's own draws; see `recommend_user.for_user`."""
    ratings, options = _read(opened), opened.options
    user = find_user(user_id, list(opened.shards.variables[options.user].levels), layout.experiment)
    num_films = len(opened.shards.variables[options.film].levels)
    is_rated, hidden = (np.zeros(num_films, bool) for _ in range(2))
    is_rated[ratings.film[ratings.user == user]] = True
    hidden[ratings.hidden_film[ratings.hidden_user == user]] = True
    posterior = open_posterior(layout.posterior)
    most = most_draws(MAX_DRAWS_OF_KNOWN, num_films)
    draws = read_factors(posterior, user, most, shared=ratings.scales.shared)
    predictor, expected = known_user(draws), np.empty((draws.num_draws, num_films), np.float32)
    for place in range(draws.num_draws):
        expected[place] = _in_unit(predictor[place], draws, place, ratings)
    held = f", {hidden.sum()} more held out" if hidden.any() else ""
    about = f"User {user_id}: {is_rated.sum()} films rated{held}; {_said(draws, posterior, ratings)}."
    rows = list_rows(_list(expected, is_rated, asked), ratings.columns, hidden)
    return FilmList(about, rows, asked.depth, doubts(layout), VALUE)


def for_rated(
    layout: ExperimentLayout, opened: Opened, rated: str | Path | Mapping[str, float], asked: Asked
) -> FilmList:
    """Return films for a new user; see `recommend_user.for_rated`."""
    ratings, options = _read(opened), opened.options
    num_films = len(opened.shards.variables[options.film].levels)
    if isinstance(rated, str | Path):
        named = read_rated(Path(rated), options.film, options.rating)
    else:
        named = {f"rating {n} of the mapping": (str(k), str(v)) for n, (k, v) in enumerate(rated.items(), 1)}
    films, values = find_rated(named, ratings.columns, num_films, ratings.scale)
    posterior = open_posterior(layout.posterior)
    draws = read_factors(posterior, None, most_draws(MAX_DRAWS, num_films), shared=ratings.scales.shared)
    given = GivenRatings(films, _as_modelled(values, ratings), np.array([0, len(films)]))
    expected, accepted = np.empty((draws.num_draws, num_films), np.float32), []
    for one in fold_in_run(draws, range(draws.num_draws), given, ratings.scales, NUM_PROPOSALS):
        expected[one.place] = _in_unit(one.logits()[0], draws, one.place, ratings)
        accepted.append(one.acceptance[0])
    is_rated = np.zeros(num_films, bool)
    is_rated[films] = True
    about = f"New user: {len(films)} films rated; {_said(draws, posterior, ratings)}."
    rows = list_rows(_list(expected, is_rated, asked), ratings.columns, np.zeros(num_films, bool))
    return FilmList(about, rows, asked.depth, doubts(layout, float(np.mean(accepted))), VALUE)


def _read(opened: Opened) -> Ratings:
    options, shards = opened.options, opened.shards
    user, film, rating = (shards.read_field(name) for name in (options.user, options.film, options.rating))
    held_out = shards.held_out()
    hidden = held_out if isinstance(held_out, dict) else {}
    hidden_user, hidden_film, hidden_rating = (
        hidden.get(name, np.zeros(0, np.int64)) for name in (options.user, options.film, options.rating)
    )
    about = shards.variables.get(options.rating, Variable("number"))
    levels = np.unique(np.asarray(options.levels or np.unique(rating), np.float64))
    scales = scales_of(options, float(np.std(rating, dtype=np.float64)), levels)
    levels = scales.levels
    every = levels if len(levels) else np.concatenate([rating, hidden_rating])
    low, high = (float(end) * about.scale + about.mean for end in (np.min(every), np.max(every)))
    scale = Scale(low, high, levels * about.scale + about.mean)
    return Ratings(user, film, hidden_user, hidden_film, _columns(shards, options.film), about, scale, scales)


def _columns(shards: Shards, film: str) -> Mapping[str, Column]:
    """Return ids, titles and genres of the films; their names in the table where the dataset has no more."""
    levels = list(shards.variables[film].levels)
    if len(shards.columns.get("film_id", [])) == len(levels):
        return shards.columns
    return {"film_id": levels, "title": levels}


def _as_modelled(values: np.ndarray, ratings: Ratings) -> np.ndarray:
    """Return ratings in the unit that the model has, or the numbers of their levels."""
    if len(ratings.scale.levels):
        return np.searchsorted(ratings.scale.levels, values).astype(np.float64)
    modelled: np.ndarray = (values - ratings.about.mean) / ratings.about.scale
    return modelled


def _in_unit(predictor: np.ndarray, draws: FactorDraws, place: int, ratings: Ratings) -> np.ndarray:
    """Return the ratings to expect in one draw, in the unit of the table."""
    shared = {name: draws.shared[name][place] for name in ratings.scales.shared}
    return expected_ratings(predictor, shared, ratings.scales) * ratings.about.scale + ratings.about.mean


def _said(draws: FactorDraws, posterior: Posterior, ratings: Ratings) -> str:
    """Say what was read, and how far a rating lies from its expectation."""
    if len(ratings.scales.levels):
        return f"{draws_of(draws.num_draws, posterior)}, of expectations"
    sigma = float(np.mean(draws.shared["sigma"])) * ratings.about.scale
    noise = f"single ratings vary about them with a standard deviation of {sigma:.2g}"
    return f"{draws_of(draws.num_draws, posterior)}, of expectations: {noise}"


def _list(expected: np.ndarray, is_rated: np.ndarray, asked: Asked) -> list[ListedFilm]:
    generator = np.random.default_rng(SEED)
    return list_films(
        expected, is_rated, asked.num_films, asked.depth, asked.order, generator, lambda values: np.asarray(values)
    )
