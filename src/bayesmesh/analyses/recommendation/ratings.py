"""Rank films for one user by expected rating, from the stored posterior of an experiment on ratings; without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.fold_in.draws import FactorDraws, read_factors
from bayesmesh.analyses.fold_in.ratings import GivenRatings, RatingScales, expected_ratings, fold_in_run, scales_of
from bayesmesh.analyses.recommendation.film_lists import (
    MAX_DRAWS,
    MAX_DRAWS_OF_KNOWN,
    NUM_PROPOSALS,
    FilmList,
    Opened,
    Request,
    film_list,
    find_user,
    known_user,
    most_draws,
)
from bayesmesh.analyses.recommendation.named_films import Scale, find_rated, read_rated
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
        variable: meaning of the numbers in the column of ratings.
        scales: of the model; those of the prior of new users count only where the ratings have been read.
    """

    num_films: int
    columns: Mapping[str, Column]
    variable: Variable
    scales: RatingScales

    def in_unit(self, modelled: np.ndarray) -> np.ndarray:
        """Return ratings, or expectations, in the unit of the table."""
        converted: np.ndarray = modelled * self.variable.scale + self.variable.mean
        return converted


def for_user(layout: ExperimentLayout, opened: Opened, user_id: str, request: Request) -> FilmList:
    """Return films for a user of the data, from the user's own draws; see `bayesmesh.workflow.stages.recommend.for_user`."""
    options, shards = opened.options, opened.shards
    user = find_user(user_id, list(shards.variables[options.user].levels), layout.experiment)
    # The user's draws already account for the prior, so normal ratings need not be read.
    training = np.zeros(0) if options.likelihood == "gaussian" else shards.read_field(options.rating)
    ratings = _describe(opened, training)
    is_rated, hidden = (_films_of(opened, user, part, ratings.num_films) for part in ("rows", HELD_OUT))
    posterior = open_posterior(layout.posterior)
    most = most_draws(MAX_DRAWS_OF_KNOWN, ratings.num_films)
    draws = read_factors(posterior, user, most, shared=ratings.scales.shared, read_bytes=READ_BYTES)
    predictor = known_user(draws)
    expected = np.stack([_expected(predictor[place], draws, place, ratings) for place in range(draws.num_draws)])
    who = f"User {user_id}: {is_rated.sum()} ratings"
    return _list(layout, opened, posterior, request, expected, is_rated, ratings, draws, who, hidden=hidden)


def for_rated(
    layout: ExperimentLayout, opened: Opened, rated: str | Path | Mapping[str, float], request: Request
) -> FilmList:
    """Return films for a new user; see `bayesmesh.workflow.stages.recommend.for_rated`."""
    options = opened.options
    training, hidden = (opened.shards.read_field(options.rating, part) for part in ("rows", HELD_OUT))
    ratings = _describe(opened, training)
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
        modelled = (values - ratings.variable.mean) / ratings.variable.scale
    posterior = open_posterior(layout.posterior)
    most = most_draws(MAX_DRAWS, ratings.num_films)
    draws = read_factors(posterior, None, most, shared=ratings.scales.shared, read_bytes=READ_BYTES)
    given = GivenRatings(films, modelled, np.array([0, len(films)]))
    expected, accepted = [], []
    for one in fold_in_run(draws, range(draws.num_draws), given, ratings.scales, NUM_PROPOSALS):
        expected.append(_expected(one.logits()[0], draws, one.place, ratings))
        accepted.append(one.acceptance[0])
    is_rated = np.zeros(ratings.num_films, bool)
    is_rated[films] = True
    who, acceptance = f"New user: {len(films)} ratings", float(np.mean(accepted))
    return _list(
        layout, opened, posterior, request, np.stack(expected), is_rated, ratings, draws, who, acceptance=acceptance
    )


def _describe(opened: Opened, training: np.ndarray) -> Ratings:
    """Describe the ratings of an experiment, given those of the training rows."""
    options, shards = opened.options, opened.shards
    levels = np.zeros(0)
    if options.likelihood == "ordinal":
        levels = np.unique(np.asarray(options.levels or np.unique(training), np.float64))
    sd = float(np.std(training, dtype=np.float64)) if len(training) else 1.0
    variable = shards.variables.get(options.rating, Variable("number"))
    num_films = len(shards.variables[options.film].levels)
    return Ratings(num_films, _columns(shards, options.film), variable, scales_of(options, sd, levels))


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
    return ratings.in_unit(expected_ratings(predictor, shared, ratings.scales)).astype(np.float32)


def _list(
    layout: ExperimentLayout,
    opened: Opened,
    posterior: Posterior,
    request: Request,
    expected: np.ndarray,
    is_rated: np.ndarray,
    ratings: Ratings,
    draws: FactorDraws,
    who: str,
    *,
    hidden: np.ndarray | None = None,
    acceptance: float = 1.0,
) -> FilmList:
    """Return the list, with a note on how far a single rating lies from its expectation."""
    note = ", of expectations"
    if not len(ratings.scales.levels):
        sigma = float(np.mean(draws.shared["sigma"])) * ratings.variable.scale
        note += f": single ratings vary about them with a standard deviation of {sigma:.2g}"
    return film_list(
        layout, posterior, request, expected, is_rated, ratings.columns, who, hidden=hidden, acceptance=acceptance,
        note=note, to_value=np.asarray, value=VALUE, item=opened.options.film,
    )  # fmt: skip
