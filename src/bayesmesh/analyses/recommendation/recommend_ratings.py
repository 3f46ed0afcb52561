"""Rank films for one user by expected rating, from the stored posterior of an experiment on ratings; without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.fold_in.draws import FactorDraws, read_factors
from bayesmesh.analyses.fold_in.ratings import (
    GivenRatings,
    RatingScales,
    expected_ratings,
    fold_in_run,
    scales_of,
)
from bayesmesh.analyses.recommendation.film_list import ListedFilm, list_films
from bayesmesh.analyses.recommendation.film_list_logits import NUM_PROPOSALS, known_user
from bayesmesh.analyses.recommendation.film_list_request import (
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
from bayesmesh.analyses.recommendation.film_list_text import FilmList
from bayesmesh.analyses.recommendation.rated_films import Scale, find_rated, read_rated
from bayesmesh.data.base import Column, Variable
from bayesmesh.data.shards import Shards
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior, open_posterior

VALUE = "expected rating"


READ_BYTES = 2**27
"""Limit on the chunks of draws that are decoded, in bytes: reading more takes most of the time of a list."""

HELD_OUT = "held_out_rows"


class Ratings(NamedTuple):
    """Common properties of the ratings of an experiment.

    Attributes:
        num_films: films of the dataset.
        columns: ids, titles and genres of the films, as far as the dataset has them.
        about: meaning of the numbers in the column of ratings.
        scales: of the model; those of the prior of new users count only where the ratings have been read.
    """

    num_films: int
    columns: Mapping[str, Column]
    about: Variable
    scales: RatingScales

    def in_unit(self, modelled: np.ndarray) -> np.ndarray:
        """Return ratings, or expectations, in the unit of the table."""
        converted: np.ndarray = modelled * self.about.scale + self.about.mean
        return converted


def for_user(layout: ExperimentLayout, opened: Opened, user_id: str, asked: Asked) -> FilmList:
    """Return films for a user of the data, from the user's own draws; see `recommend_user.for_user`."""
    options, shards = opened.options, opened.shards
    user = find_user(user_id, list(shards.variables[options.user].levels), layout.experiment)
    # The user's draws already account for the prior, so normal ratings need not be read.
    training = np.zeros(0) if options.likelihood == "gaussian" else shards.read_field(options.rating)
    ratings = _about(opened, training)
    is_rated, hidden = (_films_of(opened, user, part, ratings.num_films) for part in ("rows", HELD_OUT))
    posterior = open_posterior(layout.posterior)
    most = most_draws(MAX_DRAWS_OF_KNOWN, ratings.num_films)
    draws = read_factors(posterior, user, most, shared=ratings.scales.shared, read_bytes=READ_BYTES)
    predictor, expected = known_user(draws), np.empty((draws.num_draws, ratings.num_films), np.float32)
    for place in range(draws.num_draws):
        expected[place] = _expected(predictor[place], draws, place, ratings)
    held = f", {hidden.sum()} more held out" if hidden.any() else ""
    about = f"User {user_id}: {is_rated.sum()} ratings{held}; {_said(draws, posterior, ratings)}."
    rows = list_rows(_list(expected, is_rated, asked), ratings.columns, hidden)
    return FilmList(about, rows, asked.depth, doubts(layout), VALUE, options.film)


def for_rated(
    layout: ExperimentLayout, opened: Opened, rated: str | Path | Mapping[str, float], asked: Asked
) -> FilmList:
    """Return films for a new user; see `recommend_user.for_rated`."""
    options = opened.options
    training, hidden = (opened.shards.read_field(options.rating, part) for part in ("rows", HELD_OUT))
    ratings = _about(opened, training)
    levels = ratings.scales.levels
    if isinstance(rated, str | Path):
        named = read_rated(Path(rated), options.film, options.rating)
    else:
        named = {f"rating {n} of the mapping": (str(k), str(v)) for n, (k, v) in enumerate(rated.items(), 1)}
    every = levels if len(levels) else np.concatenate([training, hidden])
    low, high = map(float, ratings.in_unit(np.array([every.min(), every.max()], np.float64)))
    scale = Scale(low, high, ratings.in_unit(levels))
    films, values = find_rated(named, ratings.columns, ratings.num_films, scale)
    if len(levels):
        modelled = np.searchsorted(scale.levels, values).astype(np.float64)
    else:
        modelled = (values - ratings.about.mean) / ratings.about.scale
    posterior = open_posterior(layout.posterior)
    most = most_draws(MAX_DRAWS, ratings.num_films)
    draws = read_factors(posterior, None, most, shared=ratings.scales.shared, read_bytes=READ_BYTES)
    given = GivenRatings(films, modelled, np.array([0, len(films)]))
    expected, accepted = np.empty((draws.num_draws, ratings.num_films), np.float32), []
    for one in fold_in_run(draws, range(draws.num_draws), given, ratings.scales, NUM_PROPOSALS):
        expected[one.place] = _expected(one.logits()[0], draws, one.place, ratings)
        accepted.append(one.acceptance[0])
    is_rated = np.zeros(ratings.num_films, bool)
    is_rated[films] = True
    about = f"New user: {len(films)} ratings; {_said(draws, posterior, ratings)}."
    rows = list_rows(_list(expected, is_rated, asked), ratings.columns, np.zeros(ratings.num_films, bool))
    return FilmList(about, rows, asked.depth, doubts(layout, float(np.mean(accepted))), VALUE, options.film)


def _about(opened: Opened, training: np.ndarray) -> Ratings:
    """Describe the ratings of an experiment, given those of the training rows."""
    options, shards = opened.options, opened.shards
    levels = np.zeros(0)
    if options.likelihood == "ordinal":
        levels = np.unique(np.asarray(options.levels or np.unique(training), np.float64))
    sd = float(np.std(training, dtype=np.float64)) if len(training) else 1.0
    about = shards.variables.get(options.rating, Variable("number"))
    num_films = len(shards.variables[options.film].levels)
    return Ratings(num_films, _columns(shards, options.film), about, scales_of(options, sd, levels))


def _films_of(opened: Opened, user: int, part: str, num_films: int) -> np.ndarray:
    """Return which films a user has rated in a part of the data, (films,) bool."""
    found, rows = np.zeros(num_films, bool), np.flatnonzero(opened.shards.read_field(opened.options.user, part) == user)
    if rows.size:
        # If the data are sorted by user, these are few chunks.
        films = opened.shards.read_field(opened.options.film, part, int(rows[0]), int(rows[-1]) + 1)
        found[films[rows - rows[0]]] = True
    return found


def _columns(shards: Shards, film: str) -> Mapping[str, Column]:
    """Return ids, titles and genres of the films; their names in the table where the dataset has no more."""
    levels = list(shards.variables[film].levels)
    if len(shards.columns.get("film_id", [])) == len(levels):
        return shards.columns
    return {"film_id": levels, "title": levels}


def _expected(predictor: np.ndarray, draws: FactorDraws, place: int, ratings: Ratings) -> np.ndarray:
    """Return the expected ratings in one draw, in the unit of the table."""
    shared = {name: draws.shared[name][place] for name in ratings.scales.shared}
    return ratings.in_unit(expected_ratings(predictor, shared, ratings.scales))


def _said(draws: FactorDraws, posterior: Posterior, ratings: Ratings) -> str:
    """Describe the draws that were read, and how far a rating lies from its expectation."""
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
